"""Who waits for whom, and rings of ranks that wait for each other."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from grpo_doctor.hang.matching.groups import Gathered
from grpo_doctor.hang.matching.model import Cycle, Pair, Standing, Wait
from grpo_doctor.hang.matching.reach import reach
from grpo_doctor.hang.matching.signatures import Signatures

Why = Literal["missing", "mismatch", "queued", "joined", "p2p"]
# A wait in which the awaited ranks have something left to do. In `mismatch` both sides did it, and
# in `joined` everyone did: those give no direction.
DIRECTED = frozenset({"missing", "queued", "p2p"})


def waits(
    standings: Sequence[Standing],
    gathered: Mapping[str, Gathered],
    pairs: Sequence[Pair],
    signatures: Signatures,
) -> tuple[Wait, ...]:
    """One wait per rank and thing it waits for, ordered by rank."""
    found: list[Wait] = []
    for one in standings:
        tracks = gathered[one.group.key].tracks
        queued = _queued(one, gathered)
        for rank, track in tracks.items():
            if (front := track.front) is None:
                continue
            parts = track.calls.get(front, ())
            for why, on in _reasons(one, rank, front, queued):
                found.append(
                    Wait(
                        rank=rank,
                        group=one.group.key,
                        sequence=front,
                        operation=signatures.signature(parts).text() if parts else one.operation,
                        on=tuple(sorted(set(on) - {rank})),
                        why=why,
                        since_ns=parts[0].created_ns if parts else None,
                        site=signatures.site(parts[0]) if parts else "",
                    )
                )
    for pair in pairs:
        other = pair.target if pair.waiter == pair.source else pair.source
        found.append(
            Wait(pair.waiter, pair.group, pair.nth, pair.operation, (other,), "p2p", pair.since_ns)
        )
    return tuple(sorted(found, key=lambda w: (w.rank, w.group, w.sequence, w.why)))


def _reasons(
    one: Standing, rank: int, front: int, queued: tuple[int, ...]
) -> Iterable[tuple[Why, tuple[int, ...]]]:
    """Why a rank's oldest unfinished collective does not end: all reasons that hold."""
    absent = [seat.rank for seat in one.seats if seat.enqueued is None or seat.enqueued < front]
    if front != one.front:  # it is ahead of, or behind, what holds up the group
        yield ("missing", tuple(absent)) if absent else ("joined", one.arrived)
        return
    others = [r for camp in one.camps if rank not in camp.ranks for r in camp.ranks]
    agrees = not others or all(rank not in camp.ranks for camp in one.camps)
    if absent or one.kind == "missing":
        yield "missing", tuple(absent)
    if not agrees:
        yield "mismatch", tuple(others)
    elif not absent and one.kind != "missing":
        behind = tuple(r for r in queued if r != rank)
        yield ("queued", behind) if behind else ("joined", one.arrived)


def _queued(one: Standing, gathered: Mapping[str, Gathered]) -> tuple[int, ...]:
    """Members whose call cannot have begun: it was enqueued behind one of another group that is
    not done (trl#6798: "enqueued but never started"). Only where the recorder sees beginnings.
    """
    found = []
    for rank in one.arrived:
        parts = gathered[one.group.key].tracks[rank].calls.get(one.front or 0, ())
        if not parts or any(part.started is not False for part in parts):
            continue
        own = parts[0].created_ns or 0
        for key, other in gathered.items():
            track = other.tracks.get(rank)
            if key == one.group.key or track is None or track.front is None:
                continue
            first = track.calls.get(track.front, ())
            if first and 0 < (first[0].created_ns or 0) < own:
                found.append(rank)
                break
    return tuple(found)


def edges(found: Iterable[Wait]) -> dict[int, set[int]]:
    """The directed waits as a graph: rank to the ranks that it needs."""
    graph: dict[int, set[int]] = {}
    for wait in found:
        if wait.why in DIRECTED:
            graph.setdefault(wait.rank, set()).update(wait.on)
    return graph


def cycles(found: Sequence[Wait]) -> tuple[Cycle, ...]:
    """One shortest ring of waits for each set of ranks that all wait for each other."""
    graph = edges(found)
    rings = []
    for knot in knots(graph):
        ring = _shortest_ring(graph, knot)
        steps = []
        for rank, following in zip(ring, (*ring[1:], ring[0])):
            steps.append(
                next(w for w in found if w.rank == rank and w.why in DIRECTED and following in w.on)
            )
        groups = tuple(dict.fromkeys(step.group for step in steps))
        rings.append(Cycle(ring, tuple(steps), groups))
    return tuple(rings)


def knots(graph: Mapping[int, set[int]]) -> tuple[tuple[int, ...], ...]:
    """Sets of ranks in which everyone waits, in the end, for everyone else."""
    reached = reach({rank: frozenset(needed & graph.keys()) for rank, needed in graph.items()})
    found: list[tuple[int, ...]] = []
    known: set[int] = set()
    for rank in sorted(graph):
        if rank in known or rank not in reached[rank]:
            continue
        found.append(tuple(sorted(one for one in reached[rank] if rank in reached[one])))
        known.update(found[-1])
    return tuple(found)


def _shortest_ring(graph: Mapping[int, set[int]], knot: Sequence[int]) -> tuple[int, ...]:
    """From the smallest rank, always over the smallest ranks."""
    start, inside = knot[0], set(knot)
    ahead: deque[tuple[int, ...]] = deque([(start,)])
    seen: set[int] = set()
    while ahead:
        path = ahead.popleft()
        for rank in sorted(graph.get(path[-1], set()) & inside):
            if rank == start:
                return path
            if rank not in seen:
                seen.add(rank)
                ahead.append((*path, rank))
    return tuple(knot)
