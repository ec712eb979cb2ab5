"""Operations that somebody's head is in, and how far each member is with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from grpo_doctor.hang.dumps import Entry
from grpo_doctor.hang.model.matching.groups import Gathered
from grpo_doctor.hang.model.matching.pairs import Side, sides
from grpo_doctor.hang.model.matching.queues import UNKNOWN, Queue, Unit, on_device
from grpo_doctor.hang.model.matching.sinks import sinks

Ends = tuple[int, int]  # source and target, global


@dataclass(eq=False, slots=True)
class Meeting:
    """One operation. `joined` have it at a head, `queued` behind something else, `missing` have not
    given it, `unseen` have no recording, `through` are done with it. `open_ended`: there are
    members that nobody knows. `ends`: of a transfer.
    """

    group: str
    number: int
    joined: list[int] = field(default_factory=list)
    queued: dict[int, Unit] = field(default_factory=dict)
    missing: list[int] = field(default_factory=list)
    unseen: list[int] = field(default_factory=list)
    through: list[int] = field(default_factory=list)
    open_ended: bool = False
    ends: Ends | None = None

    @property
    def all_joined(self) -> bool:
        """Whether everybody is in it, or through."""
        return not (self.queued or self.missing or self.unseen or self.open_ended)


class Meetings:
    """Finds the operations of units, each once."""

    def __init__(self, gathered: Mapping[str, Gathered], queues: Mapping[int, Queue]) -> None:
        self._gathered = gathered
        self._queues = queues
        self._known: dict[tuple[object, ...], Meeting] = {}
        self._sides: dict[str, tuple[dict[Ends, Side], dict[Ends, Side]]] = {}
        # Of transfers, by the identity of their entries.
        self._units: dict[int, Unit] = {}
        self._ends: dict[int, Ends] = {}
        for queue in queues.values():
            for unit in queue.units:
                if unit.transfer:
                    self._units.update((id(part), unit) for part in unit.parts)

    def of(self, unit: Unit) -> list[Meeting]:
        """The operations that this unit takes part in."""
        if not unit.transfer:
            return [self.collective(unit.group, unit.number)]
        if not unit.parts:
            return [self._anything(unit)]
        return [found for part in unit.parts if (found := self._transfer(unit, part))]

    def collective(self, key: str, number: int) -> Meeting:
        """A collective of a group."""
        known = self._known.get((key, number))
        if known is not None:
            return known
        gathered = self._gathered[key]
        group = gathered.group
        made = Meeting(key, number)
        made.open_ended = group.size is not None and group.size > len(group.members)
        made.open_ended |= group.inferred and len(group.members) == 1
        for rank in group.members:
            queue, track = self._queues.get(rank), gathered.tracks.get(rank)
            unit = queue.collectives.get((key, number)) if queue else None
            if unit is not None:
                self._place(made, unit)
            elif queue is None:
                made.unseen.append(rank)
            elif track is not None and track.done(number):
                made.through.append(rank)
            elif track is not None and (track.enqueued or -1) >= number:
                first = queue.collectives.get((key, track.front or -1))
                if first is None:
                    made.through.append(rank)
                else:
                    made.queued[rank] = first
            else:
                made.missing.append(rank)
        self._known[key, number] = made
        return made

    @staticmethod
    def _place(made: Meeting, unit: Unit) -> None:
        if unit.behind is None:
            made.joined.append(unit.rank)
        else:
            made.queued[unit.rank] = unit

    def _anything(self, unit: Unit) -> Meeting:
        """Something of a group that nobody knows: it may need any member that does nothing."""
        known = self._gathered.get(unit.group)
        members = known.group.members if known is not None else sorted(self._queues)
        idle = [rank for rank in members if rank != unit.rank and self._is_idle(rank)]
        return Meeting(unit.group, 0, [unit.rank], missing=idle, open_ended=not idle)

    def _is_idle(self, rank: int) -> bool:
        queue = self._queues.get(rank)
        return queue is not None and not queue.units

    def _transfer(self, unit: Unit, part: Entry) -> Meeting | None:
        ends = self._ends_of(unit, part)
        if ends is None:
            return None
        sends, receives = self.sides(unit.group)
        nothing = Side((), whole=True)
        mine = (sends if part.op == "send" else receives)[ends]
        theirs = (receives if part.op == "send" else sends).get(ends, nothing)
        peer = ends[1] if part.op == "send" else ends[0]
        whole = mine.whole and theirs.whole and peer in self._queues
        own, other = (mine.entries, theirs.entries) if whole else (mine.open, theirs.open)
        place = next(at for at, one in enumerate(own) if one is part)
        partner = other[place] if place < len(other) else None
        key = unit.group, *ends, place, whole
        known = self._known.get(key)
        if known is None:
            known = Meeting(unit.group, place + 1, ends=ends)
            self._known[key] = known
            self._place(known, unit)
            if peer not in self._queues:
                known.unseen.append(peer)
            elif partner is None:
                known.missing.append(peer)
            elif partner.done:
                known.through.append(peer)
            else:
                self._place(known, self._units[id(partner)])
        return known

    def _ends_of(self, unit: Unit, part: Entry) -> Ends | None:
        """Global ranks of a transfer; None where not all members of the group are known."""
        group = self._gathered[unit.group].group
        if group.inferred and group.size != len(group.members):
            return None
        self.sides(unit.group)
        return self._ends.get(id(part))

    def sides(self, key: str) -> tuple[dict[Ends, Side], dict[Ends, Side]]:
        """Sends and receives of a group."""
        if key not in self._sides:
            gathered = self._gathered[key]
            self._sides[key] = sides(gathered, "send"), sides(gathered, "recv")
            for found in self._sides[key]:
                for ends, side in found.items():
                    self._ends.update((id(entry), ends) for entry in side.entries)
        return self._sides[key]


Node = int | Unit | Meeting


class Waiting:
    """The graph of hosts, units and meetings, and its sinks. A rank whose GPU is `hung` waits for
    nobody.
    """

    def __init__(
        self, meetings: Meetings, queues: Mapping[int, Queue], hung: frozenset[int]
    ) -> None:
        self.meetings = meetings
        self.queues = queues
        self.hung = hung
        self.heads = [unit for rank in sorted(queues) for unit in queues[rank].heads]
        starts: list[Node] = [*self.heads]
        self.sinks = tuple(sinks(starts, self.targets))

    def targets(self, node: Node) -> Sequence[Node]:
        """What has to happen first."""
        if isinstance(node, Meeting):
            if node.all_joined and node.ends is None:
                return [unit for rank in node.joined for unit in self._earlier(rank, node)]
            return [*node.queued.values(), *node.missing, *node.unseen]
        if isinstance(node, Unit):
            if node.rank in self.hung:
                return ()
            return [node.behind] if node.behind is not None else self.meetings.of(node)
        queue = self.queues.get(node)
        return queue.heads if queue is not None else ()

    def _earlier(self, rank: int, meeting: Meeting) -> list[Unit]:
        """What a rank gave before its part of a whole meeting, and which is not over: it was not
        in the way of other operations then, and may be in the way of this one.
        """
        queue = self.queues[rank]
        own = queue.collectives[meeting.group, meeting.number]
        if not own.parts or not on_device(own.parts[0]):
            return []
        return [unit for unit in queue.heads if UNKNOWN < unit.order < own.order]
