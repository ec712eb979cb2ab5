"""A rank that issued a collective too many or too few, which shifts everything after it.

The collectives of a group are counted, so after an extra one the rank's k-th meets the others'
k+1-th. Nothing breaks as long as operations and sizes happen to be equal, and the job hangs much
later, at the end, with the wrong rank waiting.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import count, takewhile
from typing import Literal

from grpo_doctor.hang.model.matching.groups import Gathered
from grpo_doctor.hang.model.matching.model import Shift
from grpo_doctor.hang.model.matching.signatures import Signatures
from grpo_doctor.hang.model.matching.tracks import History, most_frequent

MOST_SHIFTED = 16


def shifts(gathered: Gathered, past: History, signatures: Signatures) -> tuple[Shift, ...]:
    """Ranks that left the order of the others for good."""
    first = _first_divergence(past, signatures)
    if first is None:
        return ()
    right = _in_the_right(first, past, signatures)
    if not right:
        return ()
    usual = {
        number: most_frequent(call for rank, call in by_rank.items() if rank in right)
        for number, by_rank in past.calls.items()
        if number >= first and not right.isdisjoint(by_rank)
    }
    shifted = []
    for rank in sorted(set(gathered.tracks) - right):
        own = {n: by_rank[rank] for n, by_rank in past.calls.items() if rank in by_rank}
        differing = (n for n in sorted(own) if n >= first and n in usual and own[n] != usual[n])
        start = next(differing, None)
        shift = None if start is None else _shift(start, own, usual, past, signatures)
        if start is not None and shift is not None:
            kind, off_by, call = shift
            operation, site = signatures.text(signatures.key(call)), signatures.site_of(call)
            shifted.append(Shift(kind, gathered.group.key, rank, start, off_by, operation, site))
    return tuple(shifted)


def _first_divergence(past: History, signatures: Signatures) -> int | None:
    """The first number at which calls differ in another way than before it.

    Operations and sizes always count. Lines of code count when one of them was called by everyone
    together before: lines that differ in every round (`if rank == 0: a() else: b()`) are how the
    job is written.
    """
    together: set[int] = set()
    for number in sorted(past.calls):
        calls = set(past.calls[number].values())
        if len(calls) == 1:
            together |= calls
        elif len({signatures.key(call) for call in calls}) > 1 or calls & together:
            return number
    return None


def _in_the_right(first: int, past: History, signatures: Signatures) -> frozenset[int]:
    """Return the ranks taken as right where ways part: most of them; of equally many, those who do
    what earlier rounds did. Empty where neither decides.
    """
    sides: dict[int, set[int]] = defaultdict(set)
    for rank, call in past.calls[first].items():
        sides[call].add(rank)
    largest = max(map(len, sides.values()))
    leading = [call for call in sides if len(sides[call]) == largest]
    if len(leading) > 1:
        expected = past.expected(first)
        leading = [call for call in leading if call == expected] or [
            call
            for call in leading
            if expected is not None and signatures.key(call) == signatures.key(expected)
        ]
    return frozenset(sides[leading[0]]) if len(leading) == 1 else frozenset()


def _shift(
    start: int,
    own: Mapping[int, int],
    usual: Mapping[int, int],
    past: History,
    signatures: Signatures,
) -> tuple[Literal["extra", "skipped"], int, int] | None:
    """How many calls the rank is off from `start` on, and the first of those: what it called too
    many, or what it left out. Tried with one, two and so on.
    """
    mine, theirs = _run(own, start), _run(usual, start)
    if signatures.key(mine[0]) != signatures.key(theirs[0]) and _agree(mine[1:], theirs[1:], 1):
        return None  # it called one with another size, and is in step
    new = past.new(mine[0], start)
    for off_by in range(1, MOST_SHIFTED + 1):
        if _agree(mine[off_by:], theirs, 1 if new else 2):
            return "extra", off_by, mine[0]
        if _agree(mine, theirs[off_by:], 2):
            return "skipped", off_by, theirs[0]
    follows = past.expected(start + 1, theirs[0])
    if len(mine) > 1 or follows is None or signatures.key(mine[0]) != signatures.key(follows):
        return None
    return "skipped", 1, theirs[0]


def _run(calls: Mapping[int, int], start: int) -> list[int]:
    """Consecutive calls from `start`."""
    return [calls[number] for number in takewhile(calls.__contains__, count(start))]


def _agree(first: Sequence[int], second: Sequence[int], least: int) -> bool:
    """Whether two runs are equal as far as both go, and that is long enough to say."""
    length = min(len(first), len(second))
    return length >= least and first[:length] == second[:length]
