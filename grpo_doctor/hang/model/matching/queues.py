"""What each rank has given to its streams and not seen end, and what of it is at a head.

Under NCCL a host runs ahead and queues operations on many communicators. Each stream works through
its own in order. Between streams the compute stream orders: it gives nothing further before an
operation is over, unless that one was asynchronous, which no recorder notes. That something given
later is over on another stream shows that it was. "scheduled" says nothing about a start, as starts
are recorded with TORCH_NCCL_ENABLE_TIMING alone. With gloo the host blocks inside the call, so
every group's oldest operation is at a head.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from grpo_doctor.hang.dumps import Entry, GroupSeen, Recording
from grpo_doctor.hang.dumps.entries import GIVES_UP
from grpo_doctor.hang.model.matching.tracks import Track

Order = tuple[int, int]  # when a rank gave it: creation time, and the recorder's own number
UNKNOWN: Order = (-1, -1)


@dataclass(eq=False, slots=True)
class QueuedOp:
    """Something that a rank gave to a stream at once: a collective, a transfer, a batch of them.

    `behind` is what has to be over before it can start; None: it is at a head. Without `parts` only
    counters show it, and with number 0 they do not say which one it is; `group` may be "" then.
    """

    rank: int
    group: str
    number: int  # among the collectives of the group, or among its transfers
    parts: tuple[Entry, ...] = ()
    transfer: bool = False
    behind: QueuedOp | None = None

    @property
    def order(self) -> Order:
        """When it was given; before all others where that was lost."""
        return order_of(self.parts[0]) if self.parts else UNKNOWN

    @property
    def starts(self) -> bool:
        """Whether the recorder saw it start."""
        return any(part.started for part in self.parts)


@dataclass(slots=True)
class Queue:
    """All that is unfinished on one rank, the oldest first. `recorded`: the rank's recording says
    anything of its operations at all. `times_starts`: its recorder sees starts.
    """

    rank: int
    units: list[QueuedOp] = field(default_factory=list)
    recorded: bool = True
    times_starts: bool = False
    collectives: dict[tuple[str, int], QueuedOp] = field(default_factory=dict)

    @property
    def heads(self) -> list[QueuedOp]:
        """Those that may be running now."""
        return [unit for unit in self.units if unit.behind is None]


def order_of(entry: Entry) -> Order:
    """The place of an operation among all that its rank gave."""
    return entry.created_ns or 0, entry.record


def on_device(entry: Entry) -> bool:
    """Return whether the host continues while it runs."""
    return entry.backend in GIVES_UP


def queues(
    recordings: Iterable[Recording], tracks: Mapping[int, Mapping[str, Track]]
) -> dict[int, Queue]:
    """The queue of every rank with a recording. `tracks` are by rank and `Group.key`."""
    by_rank = {}
    for recording in recordings:
        if recording.rank is not None:
            own = tracks.get(recording.rank, {})
            by_rank[recording.rank] = _queue(recording.rank, recording, own)
    return by_rank


def _queue(rank: int, recording: Recording, tracks: Mapping[str, Track]) -> Queue:
    entries = recording.entries
    units = [unit for key, track in tracks.items() for unit in _units(rank, key, track)]
    if not entries and any(_is_busy(group) for group in recording.groups if not group.name):
        units.append(QueuedOp(rank, "", 0, transfer=True))
    units.sort(key=lambda unit: (unit.order, unit.group, unit.number))
    counted = any(group.status.enqueued >= 0 for group in recording.groups)
    made = Queue(rank, units, bool(tracks) or counted)
    made.times_starts = any(entry.started_ns for entry in entries[-400:])
    made.collectives = {(u.group, u.number): u for u in units if not u.transfer}
    _put_behind(units, _latest_end(entries), times_starts=made.times_starts)
    return made


def _is_busy(group: GroupSeen) -> bool:
    return group.status.completed < group.status.enqueued


def _units(rank: int, key: str, track: Track) -> Iterable[QueuedOp]:
    for number in track.unfinished:
        yield QueuedOp(rank, key, number, track.calls[number])
    if not track.unfinished and track.front is not None:
        yield QueuedOp(rank, key, track.front)
    if track.busy:
        yield QueuedOp(rank, key, 0, transfer=True)
    batches: dict[int, list[Entry]] = defaultdict(list)
    for entry in track.p2p:
        if not entry.done and entry.op in {"send", "recv"}:
            batches[entry.p2p_sequence or entry.record].append(entry)
    for number, parts in batches.items():
        yield QueuedOp(rank, key, number, tuple(parts), transfer=True)


def _latest_end(entries: Sequence[Entry]) -> Order:
    """The latest given of all that is known to be over. Dumps of active operations alone leave a
    gap in the numbers for each of those.
    """
    device = [entry for entry in entries if on_device(entry)]
    done = next((order_of(entry) for entry in reversed(device) if entry.done), None)
    if done is not None:
        return done
    gaps = [earlier for earlier, later in pairwise(device) if later.record > earlier.record + 1]
    return (order_of(gaps[-1])[0], gaps[-1].record + 1) if gaps else UNKNOWN


def _put_behind(units: Sequence[QueuedOp], latest_end: Order, *, times_starts: bool) -> None:
    """Where starts are recorded, what has not started is behind what is unfinished before it."""
    first_on: dict[object, QueuedOp] = {}
    gate: QueuedOp | None = None
    for unit in units:
        first = first_on.setdefault(_stream(unit), unit)
        if first is not unit:
            unit.behind = first
        elif unit.parts and on_device(unit.parts[0]):
            unit.behind = None if unit.starts else gate
        if unit.parts and on_device(unit.parts[0]) and gate is None:
            gate = unit if unit.order > latest_end or times_starts else None


def _stream(unit: QueuedOp) -> object:
    """Transfers run on a stream for each pair, unless they were launched as a batch."""
    if not unit.transfer or len(unit.parts) != 1:
        return unit.group, unit.transfer and not unit.parts
    (part,) = unit.parts
    return unit.group, frozenset((part.source, part.target))
