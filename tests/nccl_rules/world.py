"""Ranks with a host, a compute stream and one device stream per communicator.

A host runs through its program and gives operations to streams; it stands still only in a
synchronization or when it is too far ahead. An operation starts on a rank when the one before it
on its stream is over, and the compute stream has come to where it was given; it ends when all its
members have started and agree. Times that never come are infinite.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

NEVER = math.inf
START_S = 1_790_000_000.0
HOST_S = 40e-6  # to give one operation to a stream
OP_S = 300e-6
EARLY = frozenset({"send", "broadcast"})  # whose source may be through before the others have come
Kind = Literal["launch", "wait", "sync", "compute", "host", "stall"]


@dataclass(frozen=True)
class Step:
    """One thing that a host does.

    `launch`: gives an operation to the stream of `group`, or of a pair of it where there is a
    `peer` (global). `tag` names an asynchronous one for a later `wait` of the compute stream.
    `compute`: a kernel of `seconds`. `host`: the host itself is busy. `stall`: for ever.
    """

    kind: Kind
    op: str = ""
    group: str = ""
    input_size: tuple[int, ...] = ()
    output_size: tuple[int, ...] = ()
    peer: int | None = None
    tag: str = ""
    seconds: float = 0.0
    line: int = 0
    batch: int = 0  # transfers of one batch are one launch


Program = Sequence[Step]


@dataclass
class Call:
    """An operation as one rank gave it to a stream."""

    rank: int
    step: Step
    number: int  # of its group: collectives and transfers apart
    transfers: int  # of its group, at that time
    record: int
    created_s: float
    before: Call | None  # on its stream
    floor: list[Call] = field(default_factory=list)  # what the compute stream waits for
    floor_s: float = 0.0
    start_s: float | None = None
    end_s: float | None = None  # as its members know it
    seen_s: float | None = None  # as this rank's recorder sees it
    key: tuple[object, ...] = ()  # equal on all who meet in it


@dataclass
class Device:
    """A GPU that, from its `after`-th operation on, ends nothing that its recorder could see, and
    takes part in only `more` operations still.
    """

    after: int = 1 << 60
    more: int = 0


@dataclass
class Rank:
    """Where the host of a rank is."""

    number: int
    program: Program
    device: Device = field(default_factory=Device)
    at: int = 0
    now_s: float = START_S
    calls: list[Call] = field(default_factory=list)
    last_on: dict[tuple[str, ...], Call] = field(default_factory=dict)
    compute_s: float = START_S
    compute_after: list[Call] = field(default_factory=list)
    tags: dict[str, Call] = field(default_factory=dict)
    collectives: dict[str, int] = field(default_factory=dict)
    transfers: dict[str, int] = field(default_factory=dict)
    ends: dict[tuple[object, ...], int] = field(default_factory=dict)
    stalled: bool = False


@dataclass
class World:
    """All ranks, and the groups by name with their members in order."""

    groups: Mapping[str, Sequence[int]]
    ranks: dict[int, Rank]
    depth: int = 64
    broken: tuple[str, int] | None = None  # a group whose link is down from this collective on
    early: bool = False
    meetings: dict[tuple[object, ...], list[Call]] = field(default_factory=dict)
    starts: int = 0

    def run(self) -> World:
        """Until no host and no stream gets any further."""
        open_ones: list[Call] = []
        starts_before = 0
        while True:
            before = sum(len(rank.calls) for rank in self.ranks.values())
            moved = False
            for rank in self.ranks.values():
                moved |= self._advance(rank, open_ones)
            still = [call for call in open_ones if not self._settle(call)]
            moved |= len(still) < len(open_ones) or self.starts > starts_before
            starts_before = self.starts
            open_ones[:] = still
            after = sum(len(rank.calls) for rank in self.ranks.values())
            if not moved and before == after:
                return self

    def _advance(self, rank: Rank, opened: list[Call]) -> bool:
        began = rank.at
        while rank.at < len(rank.program):
            step = rank.program[rank.at]
            if step.kind == "stall":
                rank.stalled = True
                break
            if step.kind == "sync" and not self._synchronize(rank):
                break
            if step.kind == "launch":
                if not self._has_room(rank):
                    break
                opened.append(self._launch(rank, step))
            elif step.kind == "wait" and step.tag in rank.tags:
                rank.compute_after.append(rank.tags.pop(step.tag))
            elif step.kind == "compute":
                rank.compute_s = max(rank.compute_s, rank.now_s) + step.seconds
            elif step.kind == "host":
                rank.now_s += step.seconds
            rank.at += 1
        return rank.at > began

    def _synchronize(self, rank: Rank) -> bool:
        """The host waits for the compute stream."""
        ends = [call.seen_s for call in rank.compute_after]
        if any(end is None for end in ends):
            return False
        times_s = [end for end in ends if end is not None]
        if NEVER in times_s:
            return False
        rank.now_s = max([rank.now_s, rank.compute_s, *times_s]) + HOST_S
        rank.compute_s = rank.now_s
        rank.compute_after.clear()
        return True

    def _has_room(self, rank: Rank) -> bool:
        if len(rank.calls) < self.depth:
            return True
        end = rank.calls[-self.depth].seen_s
        if end is None or end == NEVER:
            return False
        rank.now_s = max(rank.now_s, end)
        return True

    def _launch(self, rank: Rank, step: Step) -> Call:
        last = rank.calls[-1] if rank.calls else None
        mate = last if last is not None and last.step.batch == step.batch != 0 else None
        counters = rank.collectives if step.peer is None else rank.transfers
        if mate is None:
            counters[step.group] = counters.get(step.group, 0) + 1
        rank.now_s += HOST_S
        stream: tuple[str, ...] = (step.group,)
        if step.peer is not None and not step.batch:
            low, high = sorted((rank.number, step.peer))
            stream = (step.group, str(low), str(high))
        call = Call(
            rank=rank.number,
            step=step,
            number=counters[step.group],
            transfers=rank.transfers.get(step.group, 0),
            record=len(rank.calls),
            created_s=rank.now_s,
            before=mate.before if mate else rank.last_on.get(stream),
            floor=list(mate.floor if mate else rank.compute_after),
            floor_s=mate.floor_s if mate else max(rank.compute_s, rank.now_s),
            key=self._key(rank, step, counters[step.group]),
        )
        rank.last_on[stream] = call
        rank.calls.append(call)
        if step.tag:
            rank.tags[step.tag] = call
        elif mate is None:
            rank.compute_after = [call]
        else:
            rank.compute_after.append(call)
        self.meetings.setdefault(call.key, []).append(call)
        return call

    @staticmethod
    def _key(rank: Rank, step: Step, number: int) -> tuple[object, ...]:
        if step.peer is None:
            return "all", step.group, number
        ends = (rank.number, step.peer) if step.op == "send" else (step.peer, rank.number)
        pair = ("pair", step.group, *ends, step.op)
        rank.ends[pair] = rank.ends.get(pair, 0) + 1
        return (*pair[:-1], rank.ends[pair])

    def _settle(self, call: Call) -> bool:
        """Finds its start, and its end where that can be known. True: nothing is left to find."""
        rank = self.ranks[call.rank]
        if call.start_s is None:
            ends = [before.end_s for before in (call.before, *call.floor) if before is not None]
            if any(end is None for end in ends):
                return False
            call.start_s = max([call.floor_s, *(end for end in ends if end is not None)])
            self.starts += 1
            if call.record >= rank.device.after + rank.device.more:
                call.start_s = NEVER
        if call.end_s is None:
            call.end_s = self._end(call)
        if call.end_s is None:
            return False
        hidden = call.record >= rank.device.after
        call.seen_s = NEVER if hidden else call.end_s
        return True

    def _end(self, call: Call) -> float | None:
        if self.broken is not None and call.step.peer is None:
            group, number = self.broken
            if call.step.group == group and call.number >= number:
                return None
        parties = self.meetings[call.key]
        party_count = len(self.groups[call.step.group]) if call.step.peer is None else 2
        if call.start_s is None or call.start_s == NEVER:
            return None
        if self.early and self._is_source(call):
            return call.start_s + OP_S
        if len(parties) < party_count or not _agree(parties):
            return None
        starts = [party.start_s for party in parties]
        start_times = [start for start in starts if start is not None and start != NEVER]
        if len(start_times) < party_count:
            return None
        jitter = (call.rank * 7919 + call.record * 104_729) % 97 * 1e-7
        return max(start_times) + OP_S + jitter

    def _is_source(self, call: Call) -> bool:
        if call.step.op == "send":
            return True
        return call.step.op == "broadcast" and self.groups[call.step.group][0] == call.rank


def _agree(parties: Sequence[Call]) -> bool:
    first = parties[0].step
    if first.op == "all_to_all":
        sent = sum(math.prod(party.step.input_size) for party in parties)
        got = sum(math.prod(party.step.output_size) for party in parties)
        return all(party.step.op == first.op for party in parties) and sent == got
    if first.peer is not None:
        return len({party.step.input_size for party in parties}) == 1
    shapes = {(party.step.op, party.step.input_size, party.step.output_size) for party in parties}
    return len(shapes) == 1
