"""How one option is declared: its default, help and group, on a dataclass field."""

from __future__ import annotations

from dataclasses import field
from typing import Any, TypeVar, cast

_T = TypeVar("_T")


def option(
    default: _T,
    group: str,
    text: str,
    *,
    choices: tuple[str, ...] = (),
    embedded: Any = None,
) -> _T:
    """Declares one option.

    Args:
        default: its value when a `--model` is given.
        group: its heading in `--help`.
        text: its help.
        choices: the only valid values, when there are few.
        embedded: its default with the embedded tiny model, where that differs.
    """
    metadata = {"group": group, "help": text, "choices": choices, "embedded": embedded}
    if isinstance(default, list):
        values = list(default)
        return cast("_T", field(default_factory=lambda: list(values), metadata=metadata))
    return field(default=default, metadata=metadata)
