"""How a rank paces its operations when nothing is wrong."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from grpo_doctor.hang.dumps import Entry, Recording
from grpo_doctor.hang.model.matching.familiar import familiar
from grpo_doctor.hang.model.matching.model import Rhythm
from grpo_doctor.hang.model.matching.signatures import Signatures

SECOND_NS = 1_000_000_000
COPIED_S = 86_400  # a file that is a day newer than its last entry was copied


def rhythm(recording: Recording, rank: int, signatures: Signatures) -> Rhythm:
    """Gaps between the rank's enqueues, and since when it waits."""
    created = [at for entry in recording.entries if (at := entry.created_ns)]
    open_ones = [e for e in recording.entries if not e.done and e.created_ns]
    oldest = min(open_ones, key=lambda e: e.created_ns or 0, default=None)
    made = Rhythm(
        rank=rank,
        entries=len(created),
        last_enqueued_ns=max(created, default=None),
        waiting_since_ns=oldest.created_ns if oldest else None,
        taken_ns=_taken_ns(recording.at_unix_ns, max(created, default=0)),
        familiar=familiar(recording.entries, oldest, signatures) if oldest else None,
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


def _came_before(timed: Sequence[Entry], place: int) -> bool:
    this, following = timed[place], timed[place + 1]
    return any(
        _is_like(timed[earlier], this) and _is_like(timed[earlier + 1], following)
        for earlier in range(place - 1, -1, -1)
    )


def _is_like(one: Entry, other: Entry) -> bool:
    return (one.label, one.group, one.input_sizes) == (other.label, other.group, other.input_sizes)


def _taken_ns(at_unix_ns: int, newest_ns: int) -> int:
    """When the dump was taken; 0 where its file's time is not to be believed."""
    believable = newest_ns <= at_unix_ns <= newest_ns + COPIED_S * SECOND_NS
    return at_unix_ns if believable else 0
