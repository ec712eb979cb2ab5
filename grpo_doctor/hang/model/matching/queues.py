"""What each rank has given to its streams and not seen end, and what of it is at a head.

Under NCCL a host runs ahead and queues operations on many communicators. Each stream works through
its own in order. Between streams the compute stream orders: it gives nothing further before an
operation is over, unless that one was asynchronous, which no recorder notes. That something given
later is over on another stream shows that it was. "scheduled" says nothing about a start, as starts
are recorded with TORCH_NCCL_ENABLE_TIMING alone. With gloo the host blocks inside the call, so
every group's oldest operation is at a head.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from grpo_doctor.hang.dumps import Entry, Recording
from grpo_doctor.hang.dumps.documents import GIVES_UP
from grpo_doctor.hang.model.matching.groups import Gathered, History, Signatures, Track

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
        """Return whether the recorder saw it start."""
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
    if not entries and any(
        group.status.completed < group.status.enqueued
        for group in recording.groups
        if not group.name
    ):
        units.append(QueuedOp(rank, "", 0, transfer=True))
    units.sort(key=lambda unit: (unit.order, unit.group, unit.number))
    counted = any(group.status.enqueued >= 0 for group in recording.groups)
    made = Queue(rank, units, bool(tracks) or counted)
    made.times_starts = any(entry.started_ns for entry in entries[-400:])
    made.collectives = {(u.group, u.number): u for u in units if not u.transfer}
    _put_behind(units, _latest_end(entries), times_starts=made.times_starts)
    return made


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


Ends = tuple[int, int]  # source and target, global


class Transfers(NamedTuple):
    """What one end of a directed pair recorded. `complete`: its ring still has the first one."""

    entries: tuple[Entry, ...]
    complete: bool

    @property
    def open(self) -> tuple[Entry, ...]:
        """Those not done."""
        return tuple(entry for entry in self.entries if not entry.done)


@dataclass(eq=False, slots=True)
class JointOp:
    """One operation. `joined` have it at a head, `queued` behind something else, `missing` have not
    given it, `unseen` have no recording, `through` are done with it. `open_ended`: there are
    members that are not known. `ends`: of a transfer.
    """

    group: str
    number: int
    joined: list[int] = field(default_factory=list)
    queued: dict[int, QueuedOp] = field(default_factory=dict)
    missing: list[int] = field(default_factory=list)
    unseen: list[int] = field(default_factory=list)
    through: list[int] = field(default_factory=list)
    open_ended: bool = False
    ends: Ends | None = None

    @property
    def all_joined(self) -> bool:
        """Return whether everybody is in it, or through."""
        return not (self.queued or self.missing or self.unseen or self.open_ended)


class JointOps:
    """Finds the operations of units, each once."""

    def __init__(self, gathered: Mapping[str, Gathered], queues: Mapping[int, Queue]) -> None:
        self._gathered = gathered
        self._queues = queues
        self._joint_ops: dict[tuple[object, ...], JointOp] = {}
        self._transfers: dict[str, tuple[dict[Ends, Transfers], dict[Ends, Transfers]]] = {}
        # Of transfers, by the identity of their entries.
        self._units: dict[int, QueuedOp] = {}
        self._ends: dict[int, Ends] = {}
        for queue in queues.values():
            for unit in queue.units:
                if unit.transfer:
                    self._units.update((id(part), unit) for part in unit.parts)

    def of(self, unit: QueuedOp) -> list[JointOp]:
        """The operations that this unit takes part in."""
        if not unit.transfer:
            return [self.collective(unit.group, unit.number)]
        if not unit.parts:
            return [self._anything(unit)]
        return [met for part in unit.parts if (met := self._transfer(unit, part))]

    def collective(self, key: str, number: int) -> JointOp:
        """A collective of a group."""
        cached = self._joint_ops.get((key, number))
        if cached is not None:
            return cached
        gathered = self._gathered[key]
        group = gathered.group
        some_unknown = group.size is not None and group.size > len(group.members)
        alone = group.inferred and len(group.members) == 1
        joint_op = self._joint_ops[key, number] = JointOp(
            key, number, open_ended=some_unknown or alone
        )
        for rank in group.members:
            queue, track = self._queues.get(rank), gathered.tracks.get(rank)
            unit = queue.collectives.get((key, number)) if queue else None
            if unit is not None:
                self._admit(joint_op, unit)
            elif queue is None:
                joint_op.unseen.append(rank)
            elif track is not None and track.done(number):
                joint_op.through.append(rank)
            elif track is not None and (track.enqueued or -1) >= number:
                first = queue.collectives.get((key, track.front or -1))
                if first is None:
                    joint_op.through.append(rank)
                else:
                    joint_op.queued[rank] = first
            else:
                joint_op.missing.append(rank)
        return joint_op

    @staticmethod
    def _admit(joint_op: JointOp, unit: QueuedOp) -> None:
        if unit.behind is None:
            joint_op.joined.append(unit.rank)
        else:
            joint_op.queued[unit.rank] = unit

    def _anything(self, unit: QueuedOp) -> JointOp:
        """Return an operation of an unknown group: it may need any member that does nothing."""
        gathered = self._gathered.get(unit.group)
        members = gathered.group.members if gathered is not None else sorted(self._queues)
        others = {rank: self._queues.get(rank) for rank in members if rank != unit.rank}
        idle = [rank for rank, queue in others.items() if queue is not None and not queue.units]
        return JointOp(unit.group, 0, [unit.rank], missing=idle, open_ended=not idle)

    def _transfer(self, unit: QueuedOp, part: Entry) -> JointOp | None:
        ends = self._ends_of(unit, part)
        if ends is None:
            return None
        sends, receives = self.transfers_of(unit.group)
        nothing = Transfers((), complete=True)
        mine = (sends if part.op == "send" else receives)[ends]
        theirs = (receives if part.op == "send" else sends).get(ends, nothing)
        peer = ends[1] if part.op == "send" else ends[0]
        complete = mine.complete and theirs.complete and peer in self._queues
        own, other = (mine.entries, theirs.entries) if complete else (mine.open, theirs.open)
        position = next(at for at, sibling in enumerate(own) if sibling is part)
        partner = other[position] if position < len(other) else None
        key = unit.group, *ends, position, complete
        joint_op = self._joint_ops.get(key)
        if joint_op is None:
            joint_op = self._joint_ops[key] = JointOp(unit.group, position + 1, ends=ends)
            self._admit(joint_op, unit)
            if peer not in self._queues:
                joint_op.unseen.append(peer)
            elif partner is None:
                joint_op.missing.append(peer)
            elif partner.done:
                joint_op.through.append(peer)
            else:
                self._admit(joint_op, self._units[id(partner)])
        return joint_op

    def _ends_of(self, unit: QueuedOp, part: Entry) -> Ends | None:
        """Global ranks of a transfer; None where not all members of the group are known."""
        group = self._gathered[unit.group].group
        if group.inferred and group.size != len(group.members):
            return None
        self.transfers_of(unit.group)
        return self._ends.get(id(part))

    def transfers_of(self, key: str) -> tuple[dict[Ends, Transfers], dict[Ends, Transfers]]:
        """Sends and receives of a group."""
        if key not in self._transfers:
            gathered = self._gathered[key]
            self._transfers[key] = transfers_of(gathered, "send"), transfers_of(gathered, "recv")
            for transfers in self._transfers[key]:
                for ends, own in transfers.items():
                    self._ends.update((id(entry), ends) for entry in own.entries)
        return self._transfers[key]


def transfers_of(gathered: Gathered, op: str) -> dict[tuple[int, int], Transfers]:
    """What ranks recorded of their sends, or receives, by source and target."""
    transfers: dict[tuple[int, int], list[Entry]] = defaultdict(list)
    complete: dict[tuple[int, int], bool] = {}
    for rank, track in gathered.tracks.items():
        members = _order(gathered.group.members, rank, track.p2p)
        first = min((entry.p2p_sequence for entry in track.p2p), default=1)
        for entry in track.p2p:
            if entry.op != op or entry.source is None or entry.target is None:
                continue
            if max(entry.source, entry.target) >= len(members):
                continue
            pair = members[entry.source], members[entry.target]
            if rank == pair[0 if op == "send" else 1]:
                transfers[pair].append(entry)
                complete[pair] = first <= 1
    return {pair: Transfers(tuple(entries), complete[pair]) for pair, entries in transfers.items()}


def _order(members: Sequence[int], rank: int, own: Sequence[Entry]) -> Sequence[int]:
    """Which member each rank of the group is: as the group lists them, unless the rank's own
    operations fit the sorted list and not that one (torch sorts the ranks of some groups).
    """
    ends = ({"send": entry.source, "recv": entry.target}.get(entry.op) for entry in own)
    local = {end for end in ends if end is not None}
    for candidate in (members, sorted(members)):
        if all(tuple(candidate[end : end + 1]) == (rank,) for end in local):
            return candidate
    return members


Role = tuple[tuple[str, int], ...]  # places in the groups that have transfers: a pipeline stage


class Families:
    """Which groups are siblings, what they called, and which ranks run the same program."""

    def __init__(
        self, gathered: Mapping[str, Gathered], pasts: Mapping[str, History], signatures: Signatures
    ) -> None:
        self._gathered, self._pasts, self._signatures = gathered, pasts, signatures
        kinds: dict[object, list[str]] = defaultdict(list)
        for key, group in gathered.items():
            kinds[key if group.group.inferred else _kind(group)].append(key)
        self._siblings = {key: same for same in kinds.values() for key in same}
        self._transfers = {
            key: count
            for same in kinds.values()
            for key, count in _transfers({key: gathered[key] for key in same}).items()
        }
        of_transfers = {key for key, _ in self._transfers}
        places: dict[int, list[tuple[str, int]]] = defaultdict(list)
        for key, group in gathered.items():
            for position, rank in enumerate(group.group.members):
                places[rank] += [(str(_kind(group)), position)] if key in of_transfers else []
        self._count_cache: dict[object, dict[int, int]] = {}
        self._roles: dict[int, Role] = {r: tuple(sorted(own)) for r, own in places.items()}

    def siblings(self, key: str) -> list[str]:
        """The group itself, and others of its kind."""
        return self._siblings.get(key, [key])

    def of(self, rank: int, key: str) -> str | None:
        """The group of this kind that a rank is in."""
        if rank in self._gathered[key].tracks:
            return key
        return next((s for s in self.siblings(key) if rank in self._gathered[s].tracks), None)

    def usual(self, key: str, number: int) -> int | None:
        """The signature that most siblings have as this number; None where they do not agree."""
        called: Counter[int] = Counter()
        for sibling in self.siblings(key):
            if sibling != key:
                calls = self._pasts[sibling].calls.get(number, {})
                called.update({self._signatures.key(call) for call in calls.values()})
        return most_common(called)

    def call_order(self, rank: int, key: str, number: int) -> Order | None:
        """When a rank called a collective; before all others where only that it did is known."""
        track = self._gathered[key].tracks.get(rank)
        if track is None:
            return None
        if number in track.calls:
            return order_of(track.calls[number][0])
        return UNKNOWN if track.done(number) else None

    def out_of_step(self, unit: QueuedOp, key: str | None) -> bool:
        """Whether a rank had called more or fewer collectives of this kind of group when it came to
        `unit` than most others of its role; with `key` None, more or fewer sends and receives.
        """
        keys = [k for k, rank in self._transfers if rank == unit.rank] if key is None else [key]
        for kind in keys:
            counts = self._counts(unit, kind, transfers=key is None)
            own = counts.get(unit.rank)
            usual = most_common(Counter(n for rank, n in counts.items() if rank != unit.rank))
            if own is not None and usual not in (None, own):
                return True
        return False

    def _counts(self, unit: QueuedOp, key: str, *, transfers: bool) -> Mapping[int, int]:
        """Return how many groups of one type each rank of this role had called when it came to
        `unit`, or to what groups of that type call so.
        """
        role = self._roles.get(unit.rank)
        slot = role, self.siblings(key)[0], self.siblings(unit.group)[0], unit.number, transfers
        if slot not in self._count_cache:
            self._count_cache[slot] = {
                rank: count
                for rank, other in self._roles.items()
                if other == role
                and (count := self._count(rank, key, unit, transfers=transfers)) is not None
            }
        return self._count_cache[slot]

    def _count(self, rank: int, key: str, unit: QueuedOp, *, transfers: bool) -> int | None:
        own_key, unit_key = self.of(rank, key), self.of(rank, unit.group)
        came = self.call_order(rank, unit_key, unit.number) if unit_key is not None else None
        if own_key is None or came is None or came == UNKNOWN:
            return None
        track = self._gathered[own_key].tracks[rank]
        if transfers:
            called = self._transfers.get((own_key, rank))
            later = len({entry.p2p_sequence for entry in track.p2p if order_of(entry) > came})
        else:
            called = track.enqueued
            later = sum(order_of(parts[0]) > came for parts in track.calls.values())
        return None if called is None else called - later


def most_common(counted: Counter[int]) -> int | None:
    """The most frequent one; None for a tie, or nothing."""
    top = counted.most_common(2)
    return top[0][0] if top and (len(top) == 1 or top[0][1] > top[1][1]) else None


def _kind(gathered: Gathered) -> object:
    """By description; where there is none, by the number that its members have for it."""
    group = gathered.group
    label = group.description or gathered.local_number
    return group.backend, label, len(group.members)


def _transfers(same: Mapping[str, Gathered]) -> dict[tuple[str, int], int]:
    """By group and rank, for groups of one kind. Those without a collective count nothing else,
    and the counter also knows of those that are over and were not dumped.
    """
    tracks = {(key, rank): t for key, group in same.items() for rank, t in group.tracks.items()}
    if not any(track.p2p for track in tracks.values()):
        return {}
    mixed = any(track.calls for track in tracks.values())
    return {
        position: max([0 if mixed else track.counter, *(entry.p2p_sequence for entry in track.p2p)])
        for position, track in tracks.items()
    }
