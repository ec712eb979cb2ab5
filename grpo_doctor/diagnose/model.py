"""The answer of `diagnose`."""

from __future__ import annotations

from typing import Literal

import msgspec

Certainty = Literal["proven", "likely", "possible"]


_LONGEST_QUOTE = 400


def line_at(text: str, position: int) -> tuple[int, str]:
    """Return the number, from 1, and the words of the line that holds this position."""
    begin = text.rfind("\n", 0, position) + 1
    end = text.find("\n", position)
    quote = text[begin : end if end >= 0 else None].strip()[:_LONGEST_QUOTE]
    return text.count("\n", 0, begin) + 1, quote


class Finding(msgspec.Struct, frozen=True):
    """One thing that a text shows; `line` of `file` counts from 1, `quote` is that line."""

    name: str
    cls: str
    certainty: Certainty
    says: str
    line: int = 0
    quote: str = ""
    fix: list[str] = []
    next: str = ""
    file: str = ""


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
