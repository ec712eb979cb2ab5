"""How a rank paces its operations when nothing is wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec
import numpy as np

from grpo_doctor.hang.dumps import Entry, Recording
from grpo_doctor.hang.model.matching.model import Pace
from grpo_doctor.hang.model.matching.signatures import Signatures

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
    made = Pace(
        rank=rank,
        entries=len(created),
        last_enqueued_ns=max(created, default=None),
        waiting_since_ns=oldest.created_ns if oldest else None,
        taken_ns=_taken_ns(recording.at_unix_ns, max(created, default=0)),
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


def _taken_ns(at_unix_ns: int, newest_ns: int) -> int:
    """When the dump was taken; 0 where its file's time is not to be believed."""
    believable = newest_ns <= at_unix_ns <= newest_ns + COPIED_S * SECOND_NS
    return at_unix_ns if believable else 0


def _familiar(entries: Sequence[Entry], waiting: Entry, signatures: Signatures) -> bool:
    """Whether the rank did this operation before at this place, or has a whole life on record of
    many rounds that never had it. The first step of a job, and a ring that holds less than a step,
    have seen nothing of the slow parts of a step.
    """
    if _done_before(entries, waiting, signatures):
        return True
    return _from_the_start(entries, waiting) and _in_rounds(entries)


def _done_before(entries: Sequence[Entry], waiting: Entry, signatures: Signatures) -> bool:
    """Whether it also came after the same one as now: a loop calls some of its operations at many
    places, of which only one comes after the slow part of a step.
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


def _from_the_start(entries: Sequence[Entry], waiting: Entry) -> bool:
    """Whether the ring has lost nothing yet."""
    return min(e.record for e in entries if e.backend == waiting.backend) <= 1


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
