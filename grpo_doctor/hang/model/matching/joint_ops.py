"""Operations that somebody's head is in, and how far each member is with them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from grpo_doctor.hang.dumps import Entry
from grpo_doctor.hang.model.matching.groups import Gathered
from grpo_doctor.hang.model.matching.queues import Queue, QueuedOp

Ends = tuple[int, int]  # source and target, global


class Side(NamedTuple):
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
        """Whether everybody is in it, or through."""
        return not (self.queued or self.missing or self.unseen or self.open_ended)


class JointOps:
    """Finds the operations of units, each once."""

    def __init__(self, gathered: Mapping[str, Gathered], queues: Mapping[int, Queue]) -> None:
        self._gathered = gathered
        self._queues = queues
        self._joint_ops: dict[tuple[object, ...], JointOp] = {}
        self._sides: dict[str, tuple[dict[Ends, Side], dict[Ends, Side]]] = {}
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
        idle = [rank for rank in members if rank != unit.rank and self._is_idle(rank)]
        return JointOp(unit.group, 0, [unit.rank], missing=idle, open_ended=not idle)

    def _is_idle(self, rank: int) -> bool:
        queue = self._queues.get(rank)
        return queue is not None and not queue.units

    def _transfer(self, unit: QueuedOp, part: Entry) -> JointOp | None:
        ends = self._ends_of(unit, part)
        if ends is None:
            return None
        sends, receives = self.sides_of(unit.group)
        nothing = Side((), complete=True)
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
        self.sides_of(unit.group)
        return self._ends.get(id(part))

    def sides_of(self, key: str) -> tuple[dict[Ends, Side], dict[Ends, Side]]:
        """Sends and receives of a group."""
        if key not in self._sides:
            gathered = self._gathered[key]
            self._sides[key] = sides_of(gathered, "send"), sides_of(gathered, "recv")
            for transfers in self._sides[key]:
                for ends, side in transfers.items():
                    self._ends.update((id(entry), ends) for entry in side.entries)
        return self._sides[key]


def sides_of(gathered: Gathered, op: str) -> dict[tuple[int, int], Side]:
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
    return {pair: Side(tuple(entries), complete[pair]) for pair, entries in transfers.items()}


def _order(members: Sequence[int], rank: int, own: Sequence[Entry]) -> Sequence[int]:
    """Which member each rank of the group is: as the group lists them, unless the rank's own
    operations fit the sorted list and not that one (torch sorts the ranks of some groups).
    """
    for candidate in (members, sorted(members)):
        if all(_is_own(entry, candidate, rank) for entry in own):
            return candidate
    return members


def _is_own(entry: Entry, members: Sequence[int], rank: int) -> bool:
    local = {"send": entry.source, "recv": entry.target}.get(entry.op)
    return local is None or (local < len(members) and members[local] == rank)
