"""The answer of `diagnose`."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

Certainty = Literal["proven", "likely", "possible"]


class Finding(msgspec.Struct, frozen=True):
    """One thing that a text shows; `line` counts from 1, `quote` is that line."""

    name: str
    cls: str
    certainty: Certainty
    says: str
    line: int = 0
    quote: str = ""
    fix: list[str] = []
    next: str = ""

    def but(self, **changes: Any) -> Finding:
        """Return a copy with other values."""
        return msgspec.structs.replace(self, **changes)


class Answer(msgspec.Struct, frozen=True):
    """What a text is and shows.

    `cause` is None where the text does not show it. `shown` are facts without a judgement.
    """

    schema: int
    kinds: list[str]
    framework: str
    cause: Finding | None
    others: list[Finding]
    shown: list[str]
    next_step: str
