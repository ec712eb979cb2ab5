"""Jobs drawn by a seed: a shape, a fault, a recorder, the dumps and the truth about them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from grpo_doctor_probes.evidence import FlightDump
from tests.nccl_rules.faults import KINDS, Injected, inject
from tests.nccl_rules.programs import Groups, Shape, groups_of, program
from tests.nccl_rules.recorder import VERSIONS, Recorder, dump
from tests.nccl_rules.world import NEVER, Rank, World

AFTER_S = 90.0
REASONS = {
    "host stalled": {"not-arrived", "not-sent", "not-received"},
    "two hosts stalled": {"not-arrived", "not-sent", "not-received"},
    "process dead": {"not-recorded"},
    "GPU hung": {"device-hung"},
    "host stalled and GPU hung": {"device-hung", "not-arrived", "not-sent", "not-received"},
    "collective skipped": {"skipped", "other-op", "other-size", "fewer-batches", "out-of-order"},
    "order swapped": {"out-of-order", "other-op", "other-size", "skipped"},
    "order swapped on a minority": {"out-of-order", "other-op", "other-size", "skipped"},
    "wrong size": {"other-size"},
    "wrong size in a pair": {"other-size"},
    "transfer skipped": {"not-sent", "not-received", "out-of-order", "skipped"},
}
DEVELOPMENT = (
    Shape(tensor=2, data=2, stages=2),
    Shape(tensor=2, data=4, experts=4),
    Shape(tensor=4, data=4),
    Shape(data=8, style="fsdp"),
    Shape(tensor=2, data=2, stages=4, experts=2),
    Shape(tensor=2, data=4, style="fsdp", layers=3),
    Shape(tensor=4, data=2, stages=4, batched=True),
)
HELD_OUT = (
    Shape(tensor=2, data=2, stages=4, batches=3),
    Shape(tensor=4, data=4, stages=2, experts=8),
    Shape(tensor=2, data=8, experts=8, layers=3),
    Shape(data=12, style="fsdp", layers=3),
    Shape(tensor=8, data=4, stages=2, batched=True),
    Shape(tensor=3, data=4, layers=1),
    Shape(tensor=2, data=3, stages=3, experts=6, batches=4),
    Shape(tensor=4, data=4, style="fsdp"),
)


@dataclass(frozen=True)
class Case:
    """`culprits` may all be named, `needed` must be; `world` is how many ranks there are."""

    name: str
    kind: str
    world: int
    culprits: frozenset[int]
    needed: frozenset[int]
    files: tuple[FlightDump, ...]
    recorder: Recorder


def cases(
    shapes: Sequence[Shape],
    seeds: Sequence[int],
    kinds: Sequence[str] = KINDS,
    *,
    counters: bool = False,
) -> Iterator[Case]:
    """One case per kind and seed."""
    for seed in seeds:
        for kind in kinds:
            yield drawn(kind, seed, shapes, counters=counters)


def drawn(kind: str, seed: int, shapes: Sequence[Shape], *, counters: bool = False) -> Case:
    """Tries places for the fault until one stops the job. `counters`: nothing else was dumped."""
    draw = random.Random(f"{kind}/{seed}")
    for attempt in range(200):
        shape = draw.choice(shapes)
        groups = groups_of(shape)
        world = _world(shape, groups, seed, draw)
        injected = inject(kind, world, draw)
        if injected is None:
            continue
        world.run()
        case = _case(f"{seed}.{attempt}", kind, world, groups, injected, draw, counters=counters)
        if case is not None:
            return case
    raise RuntimeError(f"no place for {kind!r} with seed {seed}")


def _world(shape: Shape, groups: Groups, seed: int, draw: random.Random) -> World:
    ranks = {rank: Rank(rank, program(shape, groups, rank, 5, seed)) for rank in range(shape.world)}
    return World(
        groups.members, ranks, depth=draw.choice((6, 16, 64, 256)), early=draw.random() < 0.3
    )


def _recorder(draw: random.Random) -> Recorder:
    active = draw.random() < 0.4
    return Recorder(
        version=draw.choice(VERSIONS),
        form=draw.choice(("pickle", "pickle", "json")),
        ring=draw.choice((2000, 2000, 300, 60)),
        active=active,
        timing=draw.random() < 0.25,
        described=draw.random() < 0.7,
    )


def _case(
    name: str,
    kind: str,
    world: World,
    groups: Groups,
    injected: Injected,
    draw: random.Random,
    *,
    counters: bool,
) -> Case | None:
    ends = [call.seen_s for rank in world.ranks.values() for call in rank.calls]
    stuck = any(end is None or end == NEVER for end in ends)
    if stuck != (kind != "healthy"):
        return None
    needed = _needed(world, injected)
    if kind not in {"link broken", "healthy"} and not needed and not kind.startswith("GPU"):
        return None
    if kind.startswith("GPU") and not _visible(world, injected):
        return None
    if kind in ("two hosts stalled", "host stalled and GPU hung") and len(needed) < 1:
        return None
    recorder = replace(_recorder(draw), entries=not counters)
    if kind == "wrong size in a pair":  # nothing but what is over tells which one is wrong
        recorder = replace(recorder, active=False)
    files = _files(kind, world, groups, injected, recorder, draw)
    return Case(
        name=f"{kind} #{name}",
        kind=kind,
        world=len(world.ranks),
        culprits=injected.ranks,
        needed=needed,
        files=files,
        recorder=recorder,
    )


def _files(
    kind: str,
    world: World,
    groups: Groups,
    injected: Injected,
    recorder: Recorder,
    draw: random.Random,
) -> tuple[FlightDump, ...]:
    created = [call.created_s for rank in world.ranks.values() for call in rank.calls]
    first, last = min(created), max(created)
    at_s = draw.uniform(first + (last - first) / 3, last) if kind == "healthy" else last + AFTER_S
    files = []
    for rank in sorted(world.ranks):
        late_s = draw.uniform(0.0, 0.02 if kind == "healthy" else 3.0)
        if rank not in injected.dead:
            moment = at_s + late_s
            files.append(dump(world, groups, rank, moment, recorder, moment + 0.01))
    draw.shuffle(files)
    return tuple(files)


def _needed(world: World, injected: Injected) -> frozenset[int]:
    """Those at fault for whom a head of some stream waits, or who show it themselves."""
    if injected.ranks and not any(rank.stalled for rank in world.ranks.values()):
        return injected.ranks if not _hung_ranks(world) else _visible(world, injected)
    ranks = set(_visible(world, injected))
    for rank in injected.ranks:
        # A second one with something left to do may as well wait for that.
        alone = len(injected.ranks) == 1 or _is_idle(world, rank)
        if world.ranks[rank].stalled and alone and _waited_for(world, rank):
            ranks.add(rank)
    return frozenset(ranks)


def _is_idle(world: World, rank: int) -> bool:
    return all(call.seen_s not in (None, NEVER) for call in world.ranks[rank].calls)


def _hung_ranks(world: World) -> set[int]:
    return {number for number, rank in world.ranks.items() if rank.device.after < 1 << 60}


def _visible(world: World, injected: Injected) -> frozenset[int]:
    """Hung devices that peers have gone past: without that it is like a broken link."""
    ranks = set()
    for number in _hung_ranks(world) & injected.ranks:
        for call in world.ranks[number].calls:
            finished = [
                party
                for party in world.meetings[call.key]
                if party.rank != number and party.seen_s not in (None, NEVER)
            ]
            open_here = call.seen_s in (None, NEVER) and call.step.peer is None
            if open_here and finished and call.step.op != "broadcast":
                ranks.add(number)
    return frozenset(ranks)


def _waited_for(world: World, rank: int) -> bool:
    """Whether a head of somebody's stream needs what this rank has not given."""
    for key, parties in world.meetings.items():
        waits = [party for party in parties if party.rank != rank and party.end_s is None]
        began = any(party.start_s not in (None, NEVER) for party in waits)
        if not began or any(party.rank == rank for party in parties):
            continue
        group = str(key[1])
        members = world.groups[group] if key[0] == "all" else key[2:4]
        if rank in members:
            return True
    return False
