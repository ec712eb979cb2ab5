"""Who waits for whom, and rings of ranks that wait for each other."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence

from grpo_doctor.hang.model.matching.graph import Node, Waiting
from grpo_doctor.hang.model.matching.meetings import Meeting
from grpo_doctor.hang.model.matching.model import Camp, Cycle, Wait, Why
from grpo_doctor.hang.model.matching.queues import Unit
from grpo_doctor.hang.model.matching.signatures import Signatures

# A wait in which the awaited ranks have something left to do. In `mismatch` both sides did it, and
# in `joined` everyone did: those give no direction.
DIRECTED = frozenset({"missing", "queued", "p2p"})
Camps = Callable[[Meeting], tuple[Camp, ...]]


def waits(waiting: Waiting, signatures: Signatures, camps: Camps) -> tuple[Wait, ...]:
    """One wait for every head of a stream and reason that it does not end, ordered by rank. What
    stands behind a head waits for that, and has none.
    """
    found: list[Wait] = []
    shared: dict[tuple[Meeting, Why], tuple[int, ...]] = {}  # a thousand wait for the same ones
    for unit in waiting.heads:
        for meeting in waiting.meetings.of(unit):
            for why, on in _reasons(unit, meeting, camps):
                if why in DIRECTED:
                    ranks = shared.setdefault((meeting, why), tuple(sorted(on)))
                else:
                    ranks = tuple(sorted(rank for rank in on if rank != unit.rank))
                found.append(_wait(unit, meeting, why, ranks, signatures))
    return tuple(sorted(found, key=lambda w: (w.rank, w.group, w.sequence, w.why, w.on)))


def _wait(
    unit: Unit, meeting: Meeting, why: Why, on: tuple[int, ...], signatures: Signatures
) -> Wait:
    operation = signatures.signature(unit.parts).text() if unit.parts else "a collective"
    if meeting.ends is not None:
        source, target = meeting.ends
        sends = unit.rank == source
        operation = f"send to rank {target}" if sends else f"receive from rank {source}"
    return Wait(
        rank=unit.rank,
        group=unit.group,
        sequence=meeting.number,
        operation=operation,
        on=on,
        why=why,
        since_ns=unit.parts[0].created_ns if unit.parts else None,
        site=signatures.site(unit.parts[0]) if unit.parts else "",
    )


def _reasons(unit: Unit, meeting: Meeting, camps: Camps) -> Iterator[tuple[Why, Sequence[int]]]:
    """Why an operation at a head does not end: all reasons that hold."""
    absent = [*meeting.missing, *meeting.unseen]
    if meeting.ends is not None:
        behind = [*absent, *meeting.queued]
        yield ("p2p", behind) if behind else ("joined", meeting.ends)
        return
    if absent or meeting.open_ended:
        yield "missing", absent
    if meeting.queued:
        yield "queued", list(meeting.queued)
    sides = camps(meeting)
    if len(sides) > 1:
        own = next((camp for camp in sides if unit.rank in camp.ranks), None)
        yield "mismatch", [rank for camp in sides if camp is not own for rank in camp.ranks]
    elif meeting.all_joined:
        yield "joined", [*meeting.joined, *meeting.through]


def cycles(found: Sequence[Wait], sinks: Iterable[frozenset[Node]]) -> tuple[Cycle, ...]:
    """One shortest ring of waits for each set of heads that all wait for each other."""
    rings = []
    for sink in sinks:
        inside = waits_of(sink, found)
        ring = _shortest_ring(inside)
        if ring:
            steps = [
                next(w for w in inside if w.rank == rank and following in w.on)
                for rank, following in zip(ring, (*ring[1:], ring[0]))
            ]
            groups = tuple(dict.fromkeys(step.group for step in steps))
            rings.append(Cycle(ring, tuple(steps), groups))
    return tuple(sorted(rings, key=lambda ring: ring.ranks))


def waits_of(sink: frozenset[Node], found: Iterable[Wait]) -> list[Wait]:
    """The directed waits in the operations of a sink."""
    meetings = {(m.group, m.number, m.ends is None) for m in sink if isinstance(m, Meeting)}
    heads = {node.rank for node in sink if isinstance(node, Unit) and node.behind is None}
    return [
        w
        for w in found
        if w.why in DIRECTED
        and w.rank in heads
        and (w.group, w.sequence, w.why != "p2p") in meetings
    ]


def _shortest_ring(inside: Sequence[Wait]) -> tuple[int, ...]:
    """From the smallest rank that a ring leads back to, always over the smallest ranks."""
    graph: dict[int, set[int]] = {}
    for wait in inside:
        graph.setdefault(wait.rank, set()).update(wait.on)
    following = {rank: sorted(needed & graph.keys()) for rank, needed in graph.items()}
    for start in sorted(graph):
        ahead: deque[tuple[int, ...]] = deque([(start,)])
        seen: set[int] = set()
        while ahead:
            path = ahead.popleft()
            for rank in following[path[-1]]:
                if rank == start:
                    return path
                if rank not in seen:
                    seen.add(rank)
                    ahead.append((*path, rank))
    return ()
