"""Names, paths and messages of strangers may hold anything: here they become one harmless line."""

from __future__ import annotations

from itertools import groupby

from grpo_doctor_probes.redact import redact_command

NAME_LIMIT, LINE_LIMIT, COMMAND_LIMIT, MESSAGE_LIMIT, PATH_LIMIT = 64, 200, 400, 2000, 4096


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
    """A command line without secrets, in one line."""
    return printable(" ".join(redact_command(arguments)).strip(), COMMAND_LIMIT)
