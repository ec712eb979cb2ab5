"""The rank in the name of a dump file, where the name leaves no doubt.

Torch appends the rank to whatever prefix the user set, and operators add host names and times:
`nccl_trace_rank_3`, `comm_lib_trace_rank_3`, `gpu-17_rank_00003.pkl`, `rank_3_20261121T1030.json`.
"""

from __future__ import annotations

import re
from pathlib import PurePath

_RANK = re.compile(
    r"(?<![a-z])(?:(local|node|group|machine)[_.=-]?)?rank[_.=-]*(\d+)", re.IGNORECASE
)
_GLUED = re.compile(r"(?<=[a-z])rank[_.=-]?(\d+)", re.IGNORECASE)  # tracerank3
_NUMBER = re.compile(r"\d+")
_ENDINGS = re.compile(r"(\.(json|pkl|pickle|gz|bin|dump|txt|trace|pt))+$", re.IGNORECASE)


def rank_of(path: PurePath) -> int | None:
    """The rank that the name of `path` tells, or, if it has no number, that of its folder."""
    stem = _ENDINGS.sub("", path.name)
    if _NUMBER.search(stem):
        return _rank(stem)
    return _named_rank(path.parent.name)


def _rank(stem: str) -> int | None:
    named = _named_rank(stem)
    if named is not None or "rank" in stem.lower():
        return named
    numbers = _NUMBER.findall(stem)
    # A number alone is a rank only at the end, where torch writes it: not `v2_trace`, `20261121`.
    if len(numbers) == 1 and stem.endswith(numbers[0]) and len(numbers[0]) <= 5:
        return int(numbers[0])
    return None


def _named_rank(text: str) -> int | None:
    """The one number that follows the word rank; not a local, node or group rank."""
    found = {int(number) for of, number in _RANK.findall(text) if not of}
    found = found or {int(number) for number in _GLUED.findall(text)}
    return found.pop() if len(found) == 1 else None
