"""Names, paths and messages of strangers may hold anything: here they become harmless."""

from __future__ import annotations

import re
from itertools import groupby

from grpo_doctor_probes.record.redact import redact_command

NAME_LIMIT, LINE_LIMIT, COMMAND_LIMIT, MESSAGE_LIMIT, PATH_LIMIT = 64, 200, 400, 2000, 4096
# All controls but the tab and the line's end; what turns a line around; halves of characters.
_ACTS = "\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
_ACTING = re.compile(f"[{_ACTS}]")
# Our own colors: they change how text looks, and nothing else.
_COLOR_OR_ACTING = re.compile(rf"(\x1b\[[0-9;]*m)|[{_ACTS}]")


def printable(text: bytes | str, limit: int = LINE_LIMIT) -> str:
    """`text` in one line of at most `limit` characters, safe to send to a terminal.

    Control characters, line ends, marks that turn a line around and broken encoding become `?`.
    """
    if isinstance(text, bytes):
        text = text.decode("utf-8", "replace")
    shown = text[:limit]
    if not shown.isprintable():
        runs = groupby(shown, str.isprintable)
        shown = "".join("".join(run) if fine else "?" for fine, run in runs)
    return shown if len(text) <= limit else shown[: limit - 1] + "…"


def printable_command(arguments: tuple[str, ...]) -> str:
    """Return a command line without secrets, in one line."""
    return printable(" ".join(redact_command(arguments)).strip(), COMMAND_LIMIT)


def visible(text: str, *, colored: bool = False) -> str:
    """Return the text with `?` for each character that would act on a terminal; its colors stay
    where it was `colored`."""
    if colored:
        return _COLOR_OR_ACTING.sub(lambda match: match[1] or "?", text)
    return _ACTING.sub("?", text)


def escaped_json(text: str) -> str:
    """Return JSON of the same value, those characters in its strings escaped."""
    return _ACTING.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
