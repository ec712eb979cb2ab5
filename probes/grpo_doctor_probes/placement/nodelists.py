"""Slurm's short form for many hosts: `gpu[001-003,7],login1` (hostlist(3) of slurm)."""

from __future__ import annotations

import re
from collections.abc import Iterator

_LONGEST = 100_000
_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?\Z", re.ASCII)


def expanded(text: str, at_most: int) -> tuple[str, ...]:
    """The hosts in order; empty where the list is not understood or has more than `at_most`."""
    hosts: list[str] = []
    try:
        for part in _parts(text[:_LONGEST]):
            for host in _expanded_part(part):
                hosts.append(host)
                if len(hosts) > at_most:
                    return ()
    except (ValueError, RecursionError):
        return ()
    return tuple(hosts)


def _parts(text: str) -> Iterator[str]:
    """Split at commas outside of brackets."""
    depth, start = 0, 0
    for at, character in enumerate(text):
        if character == "[":
            depth += 1
        elif character == "]":
            depth -= 1
        elif character == "," and depth == 0:
            yield text[start:at]
            start = at + 1
        if depth not in (0, 1):
            raise ValueError(text)
    if depth:
        raise ValueError(text)
    if text[start:]:
        yield text[start:]


def _expanded_part(part: str) -> Iterator[str]:
    """`rack[1-2]n[01-04]`: the last bracket turns fastest."""
    head, opening, rest = part.partition("[")
    if not opening:
        yield part
        return
    inner, _, tail = rest.partition("]")
    for number in _numbers(inner):
        for end in _expanded_part(tail):
            yield f"{head}{number}{end}"


def _numbers(text: str) -> Iterator[str]:
    """`001-003,7`: leading zeros are part of a name."""
    for part in text.split(","):
        found = _RANGE.match(part)
        if found is None:
            raise ValueError(text)
        first, last = found[1], found[2] or found[1]
        if int(last) < int(first):  # else it names nobody, as often as a bracket before it counts
            raise ValueError(text)
        for number in range(int(first), int(last) + 1):
            yield str(number).zfill(len(first))
