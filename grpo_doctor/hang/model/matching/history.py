"""How a rank paces its operations, and where it called a few more or fewer than the others.

The collectives of a group are counted, so after an extra one the rank's k-th meets the others'
k+1-th. Nothing breaks as long as operations and sizes happen to be equal, and the job hangs much
later, at the end, with the wrong rank waiting.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import count, takewhile
from typing import Literal

import msgspec
import numpy as np

from grpo_doctor.hang.dumps import Entry, Recording
from grpo_doctor.hang.model.matching.groups import Gathered, History, Signatures, most_frequent
from grpo_doctor.hang.model.matching.model import Pace, Shift

SECOND_NS = 1_000_000_000
COPIED_S = 86_400  # a file that is a day newer than its last entry was copied
RECENT = 400  # calls, in which rounds repeat if they are short enough to be told from layers
LEAST_ROUNDS = 8
LEAST_SORTS = 2  # who starts up or generates goes through the layers with one sort of operation
MOST_NEW = 8  # calls that came after the last whole round


def pace(recording: Recording, rank: int, signatures: Signatures) -> Pace:
    """Gaps between the rank's enqueues, and since when it waits."""
    created = [at for entry in recording.entries if (at := entry.created_ns)]
    open_ones = [e for e in recording.entries if not e.done and e.created_ns]
    oldest = min(open_ones, key=lambda e: e.created_ns or 0, default=None)
    taken_ns, newest_ns = recording.at_unix_ns, max(created, default=0)
    believable = newest_ns <= taken_ns <= newest_ns + COPIED_S * SECOND_NS
    made = Pace(
        rank=rank,
        entries=len(created),
        last_enqueued_ns=max(created, default=None),
        waiting_since_ns=oldest.created_ns if oldest else None,
        taken_ns=taken_ns if believable else 0,
        familiar=_familiar(recording.entries, oldest, signatures) if oldest else None,
    )
    return msgspec.structs.replace(made, longest_gap_ns=_longest_of_steps(recording.entries))


def _longest_of_steps(entries: Sequence[Entry]) -> int | None:
    """The longest time between two operations that had followed each other before. What comes for
    the first time belongs to the job's start, where models load and kernels compile for minutes.
    """
    timed = sorted((e for e in entries if e.created_ns), key=lambda e: e.created_ns or 0)
    if len(timed) < 2:
        return None
    gaps = np.diff(np.array([e.created_ns for e in timed], dtype=np.int64))
    for before in np.argsort(-gaps, kind="stable"):
        if _came_before(timed, int(before)):
            return int(gaps[before])
    return None


def _came_before(timed: Sequence[Entry], position: int) -> bool:
    this, following = _sort(timed[position]), _sort(timed[position + 1])
    return any(
        _sort(timed[earlier]) == this and _sort(timed[earlier + 1]) == following
        for earlier in range(position - 1, -1, -1)
    )


def _sort(entry: Entry) -> object:
    return entry.label, entry.group, entry.input_sizes


def _familiar(entries: Sequence[Entry], waiting: Entry, signatures: Signatures) -> bool:
    """Whether the rank did this operation before at this place, or has a whole life on record of
    many rounds that never had it. The first step of a job, and a ring that holds less than a step,
    have seen nothing of the slow parts of a step.
    """
    if _done_before(entries, waiting, signatures):
        return True
    has_lost_none = min(e.record for e in entries if e.backend == waiting.backend) <= 1
    return has_lost_none and _in_rounds(entries)


def _done_before(entries: Sequence[Entry], waiting: Entry, signatures: Signatures) -> bool:
    """Return whether it also came after the same one as now: a loop calls some of its operations at
    many places, of which only one comes after the slow part of a step.
    """
    own = [e for e in entries if e.created_ns and e.thread_name == waiting.thread_name]
    own.sort(key=lambda e: e.created_ns or 0)
    steps = list(zip([None, *own], own, strict=False))
    before = next(earlier for earlier, own in steps if own is waiting)

    def alike(entry: Entry | None, other: Entry | None) -> bool:
        if entry is None or other is None:
            return entry is other
        return _kind(entry) == _kind(other) and signatures.site(entry) == signatures.site(other)

    return any(
        own.done and alike(own, waiting) and alike(earlier, before)
        for earlier, own in steps
        if own is not waiting
    )


def _kind(entry: Entry) -> object:
    partners = entry.is_p2p, entry.source, entry.target
    return entry.label, entry.input_sizes, entry.group, entry.backend, partners


def _in_rounds(entries: Sequence[Entry]) -> bool:
    """Whether the thread that called most did the same, of several sorts, again and again."""
    threads = Counter(entry.thread_name for entry in entries)
    thread = min(threads, key=lambda name: (-threads[name], name))
    calls = [(e.label, e.group) for e in entries if e.thread_name == thread]
    recent = calls[-RECENT - MOST_NEW :]
    return any(_repeats(recent[: len(recent) - new]) for new in range(min(MOST_NEW, len(recent))))


def _repeats(calls: Sequence[tuple[str, str]]) -> bool:
    for length in range(LEAST_SORTS, len(calls) // LEAST_ROUNDS + 1):
        last = calls[-length * LEAST_ROUNDS :]
        if len({label for label, _ in last[:length]}) < LEAST_SORTS:
            continue
        if last[length:] == last[:-length]:
            return True
    return False


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
    return [calls[number] for number in takewhile(calls.__contains__, count(start))]


def _agree(first: Sequence[int], second: Sequence[int], least: int) -> bool:
    """Return whether two runs are equal as far as both go, and that is long enough to say."""
    length = min(len(first), len(second))
    return length >= least and first[:length] == second[:length]
