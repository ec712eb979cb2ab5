"""How one option is declared on a dataclass field: default, help, command line, and its limits."""

from __future__ import annotations

import dataclasses
from dataclasses import field
from types import MappingProxyType
from typing import Any, TypeVar, cast

from msgspec import Meta

_T = TypeVar("_T")


class Options:
    """Options under one heading of `--help`; a class that only joins such classes gives none."""

    def __init_subclass__(cls, heading: str = "") -> None:
        super().__init_subclass__()
        for declared in vars(cls).values():
            if isinstance(declared, dataclasses.Field):
                metadata = {**declared.metadata, "group": heading}
                declared.metadata = MappingProxyType(metadata)


def option(
    default: _T,
    text: str,
    *,
    choices: tuple[str, ...] = (),
    embedded: Any = None,
    reason: str = "",
    **limits: Any,
) -> _T:
    """Declare one option, in a class of `Options`."""
    metadata = {
        "help": text,
        "limits": Meta(**limits),
        "choices": choices,
        "embedded": embedded,
        "reason": reason,
    }
    if isinstance(default, list):
        return cast("_T", field(default_factory=default.copy, metadata=metadata))
    return field(default=default, metadata=metadata)
