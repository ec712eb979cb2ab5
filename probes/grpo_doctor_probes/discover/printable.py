"""Names and commands of processes may hold anything: here they become one harmless line."""

from __future__ import annotations

import re

from grpo_doctor_probes.redact import redact_command

NAME_LIMIT, COMMAND_LIMIT = 64, 400
# C0 and C1 controls, DEL, line separators, marks that reverse the direction of text, surrogates.
_HARMFUL = re.compile(
    "[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]+"
)


def printable(text: str, limit: int = NAME_LIMIT) -> str:
    """`text` in one line of at most `limit` characters, safe to send to a terminal."""
    line = _HARMFUL.sub("?", text).strip()
    return line if len(line) <= limit else line[: limit - 1] + "…"


def printable_command(arguments: tuple[str, ...]) -> str:
    """A command line without secrets, in one line."""
    return printable(" ".join(redact_command(arguments)), COMMAND_LIMIT)
