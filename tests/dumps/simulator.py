"""Ranks that run given programs of collectives until they are done or stuck, and record it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

START_NS = 1_795_000_000_000_000_000
OP_NS = 2_000_000
WORLD = "0"


@dataclass(frozen=True)
class Call:
    """A collective, or a send or receive where `peer` (a global rank) is given."""

    op: str
    group: str = WORLD
    elements: int = 1024
    dtype: str = "Float"
    line: int = 10
    peer: int | None = None
    wait: bool = True  # for its end before the next one
    compute_ns: int = 0  # before it


@dataclass(frozen=True)
class Halt:
    """The rank does not go on: asleep, dead, in user code."""


Program = Sequence[Call | Halt]


@dataclass
class Record:
    """A call as the recorder of a rank saw it."""

    call: Call
    number: int  # of its group, collectives and point-to-point apart
    record: int
    op_id: int
    created_ns: int
    completed_ns: int = 0


@dataclass
class Rank:
    """Where a simulated rank is."""

    program: Program
    at: int = 0
    now_ns: int = START_NS
    records: list[Record] = field(default_factory=list)
    collectives: dict[str, int] = field(default_factory=dict)
    transfers: dict[str, int] = field(default_factory=dict)

    def issue(self) -> bool:
        """Calls the next of its program, unless it waits or has halted."""
        waiting = self.records and self.records[-1].call.wait and not self.records[-1].completed_ns
        if waiting or self.at >= len(self.program):
            return False
        call = self.program[self.at]
        if isinstance(call, Halt):
            return False
        self.at += 1
        self.now_ns += OP_NS // 10 + call.compute_ns
        counters = self.collectives if call.peer is None else self.transfers
        counters[call.group] = counters.get(call.group, 0) + 1
        op_id = 1 + sum(r.call.group == call.group for r in self.records)
        number = counters[call.group]
        self.records.append(Record(call, number, len(self.records), op_id, self.now_ns))
        return True


@dataclass
class Job:
    """Groups by name, with their members in group order, and the ranks."""

    groups: Mapping[str, Sequence[int]]
    ranks: dict[int, Rank]

    def run(self) -> Job:
        """Runs until nothing changes any more."""
        while self.round():
            pass
        return self

    def round(self) -> bool:
        """One call of every rank that can, and the end of all that can end."""
        issued = [rank.issue() for rank in self.ranks.values()]
        return any([*issued, *self._finish()])

    def _finish(self) -> list[bool]:
        met: dict[tuple[object, ...], list[tuple[int, Record]]] = {}
        for number, rank in self.ranks.items():
            pair_counts: dict[tuple[object, ...], int] = {}
            for record in rank.records:
                key = self._meeting(number, record, pair_counts)
                met.setdefault(key, []).append((number, record))
        changed = []
        for key, parties in met.items():
            party_count = len(self.groups[key[1]]) if key[0] == "collective" else 2  # type: ignore[index]
            calls = {(r.call.op, r.call.elements, r.call.dtype) for _, r in parties}
            agreed = key[0] == "pair" or len(calls) == 1
            if len(parties) == party_count and agreed and not parties[0][1].completed_ns:
                end = max(record.created_ns for _, record in parties) + OP_NS
                for number, record in parties:
                    record.completed_ns = end
                    self.ranks[number].now_ns = max(self.ranks[number].now_ns, end)
                changed.append(True)
        return changed

    def _meeting(
        self, number: int, record: Record, pair_counts: dict[tuple[object, ...], int]
    ) -> tuple[object, ...]:
        """What a record has to meet: the same number of its group, or the other end's k-th."""
        call = record.call
        if call.peer is None:
            return "collective", call.group, record.number
        ends = (number, call.peer) if call.op == "send" else (call.peer, number)
        pair = ("pair", call.group, *ends)
        pair_counts[pair] = pair_counts.get(pair, 0) + 1
        return (*pair, pair_counts[pair])


def job(groups: Mapping[str, Sequence[int]], programs: Mapping[int, Program]) -> Job:
    """A job that has not begun."""
    return Job(
        groups,
        {
            rank: Rank(program, now_ns=START_NS + rank * 1000)
            for rank, program in sorted(programs.items())
        },
    )
