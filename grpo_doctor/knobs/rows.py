"""How the tables of spellings are written: one call per knob and range of versions."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from grpo_doctor.knobs.model import Gate, Spelling


class Rows:
    """Makes the rows of one framework; `first` is its oldest version that was read."""

    def __init__(self, first: str) -> None:
        self.first = first

    def __call__(  # noqa: PLR0913 - a row has that many columns
        self,
        knob: str,
        key: str,
        default: Any,
        *later: tuple[str, Any],
        since: str | None = None,
        until: str | None = None,
        values: tuple[tuple[Any, Any], ...] = (),
        gate: Gate | None = None,
        beside: tuple[tuple[str, Any], ...] = (),
        inside: str | None = None,
        item: int | None = None,
        new: bool = False,
    ) -> Spelling:
        """A row; `later` are (from version, default) pairs."""
        begins = since or self.first
        defaults = ((begins, default), *later)
        return Spelling(knob, key, begins, until, defaults, values, gate, beside, inside, item, new)


def inherited(
    base: tuple[Spelling, ...], own: tuple[Spelling, ...], *, absent: Collection[str]
) -> tuple[Spelling, ...]:
    """A table's `own` rows, and those of `base` for the knobs that are neither there nor absent."""
    excluded = {*absent, *(row.knob for row in own)}
    return (*own, *(row for row in base if row.knob not in excluded))
