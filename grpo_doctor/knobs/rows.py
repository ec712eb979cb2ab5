"""How the tables of names are written: one call per setting and range of versions."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from grpo_doctor.knobs.model import Spelling


class Rows:
    """Makes the rows of one framework; `first` is its oldest version that was read."""

    def __init__(self, first: str) -> None:
        self.first = first

    def __call__(
        self,
        knob: str,
        key: str,
        default: Any,
        *later: tuple[str, Any],
        since: str | None = None,
        **more: Any,
    ) -> Spelling:
        """A row; `later` are (from version, default) pairs, `more` the other columns by name."""
        begins = since or self.first
        return Spelling(knob, key, begins, defaults=((begins, default), *later), **more)


def inherited(
    base: tuple[Spelling, ...], own: tuple[Spelling, ...], *, absent: Collection[str]
) -> tuple[Spelling, ...]:
    """Return the `own` rows, and those of `base` for settings that are neither there nor absent."""
    excluded = {*absent, *(row.knob for row in own)}
    return (*own, *(row for row in base if row.knob not in excluded))
