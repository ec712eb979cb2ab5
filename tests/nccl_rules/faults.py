"""Faults, put where they happen: into a host's program, a device, or a link."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tests.nccl_rules.world import Device, Step, World

KINDS = (
    "host stalled",
    "process dead",
    "GPU hung",
    "link broken",
    "collective skipped",
    "order swapped",
    "order swapped on a minority",
    "wrong size",
    "wrong size in a pair",
    "transfer skipped",
    "two hosts stalled",
    "host stalled and GPU hung",
    "healthy",
)


@dataclass
class Injected:
    """What was done. `ranks` are those at fault; none for a link and a healthy job."""

    kind: str
    ranks: frozenset[int]
    dead: frozenset[int] = frozenset()


def inject(kind: str, world: World, draw: random.Random) -> Injected | None:
    """Puts the fault into a world that has not run. None: there is no place for it."""
    return _WAYS[kind](world, draw)


def _late(program: Sequence[Step], draw: random.Random, kind: str = "launch") -> int:
    """A place in the last two thirds."""
    places = [at for at, step in enumerate(program) if step.kind == kind]
    return draw.choice(places[len(places) // 3 : -4])


def _stall(world: World, rank: int, draw: random.Random) -> None:
    own = world.ranks[rank]
    at = _late(own.program, draw)
    own.program = [*own.program[:at], Step("stall")]


def _stalled(world: World, draw: random.Random, count: int = 1) -> Injected:
    ranks = draw.sample(sorted(world.ranks), count)
    for rank in ranks:
        _stall(world, rank, draw)
    return Injected("", frozenset(ranks))


def _dead(world: World, draw: random.Random) -> Injected:
    injected = _stalled(world, draw)
    return replace(injected, dead=injected.ranks)


def _hung(world: World, draw: random.Random) -> Injected:
    rank = draw.choice(sorted(world.ranks))
    launches = sum(step.kind == "launch" for step in world.ranks[rank].program)
    after = draw.randrange(launches // 3, launches - 8)
    world.ranks[rank].device = Device(after, draw.choice((1, 2, 3, 5, 8, 12)))
    return Injected("", frozenset({rank}))


def _broken(world: World, draw: random.Random) -> Injected:
    group, number = "", 0
    while not group:
        rank = draw.choice(sorted(world.ranks))
        step = world.ranks[rank].program[_late(world.ranks[rank].program, draw)]
        if step.peer is None:
            group = step.group
            own = [
                step for step in world.ranks[rank].program if step.group == group and not step.peer
            ]
            number = draw.randrange(len(own) // 3, len(own)) + 1
    world.broken = (group, number)
    return Injected("", frozenset())


def _skipped(world: World, draw: random.Random, *, transfers: bool = False) -> Injected | None:
    rank = draw.choice(sorted(world.ranks))
    own = world.ranks[rank]
    for _ in range(50):
        at = _late(own.program, draw)
        if (own.program[at].peer is not None) == transfers:
            own.program = [*own.program[:at], *own.program[at + 1 :]]
            return Injected("", frozenset({rank}))
    return None


def _swapped(world: World, draw: random.Random, most: int = 1) -> Injected | None:
    """Two collectives in a row of two groups that meet in more than one rank."""
    first = draw.choice(sorted(world.ranks))
    program = world.ranks[first].program
    places = [
        (at, after)
        for at, after in _neighbours(program)
        if at > len(program) // 3
        and program[at].group != program[after].group
        and len(_shared(world, program[at], program[after])) > 1
    ]
    if not places:
        return None
    at, after = draw.choice(places)
    together = _shared(world, program[at], program[after])
    count = 1 if most == 1 else max(1, min(most, (len(together) - 1) // 2))
    if most > 1 and count < 2:
        return None
    ranks = {first, *draw.sample(sorted(together - {first}), count - 1)}
    for rank in ranks:
        own = list(world.ranks[rank].program)
        if len(own) <= after or (own[at].op, own[at].group) != (program[at].op, program[at].group):
            return None
        if (own[after].op, own[after].group) != (program[after].op, program[after].group):
            return None
        own[at], own[after] = own[after], own[at]
        world.ranks[rank].program = own
    return Injected("", frozenset(ranks))


def _neighbours(program: Sequence[Step]) -> list[tuple[int, int]]:
    """Places of two collectives with nothing but kernels between them."""
    pairs = []
    for at, step in enumerate(program):
        after = at + 1
        while after < len(program) and program[after].kind == "compute":
            after += 1
        if after < len(program) and step.kind == program[after].kind == "launch":
            pair = step, program[after]
            if all(launch.peer is None and not launch.tag for launch in pair):
                pairs.append((at, after))
    return pairs


def _shared(world: World, first: Step, second: Step) -> set[int]:
    return set(world.groups[first.group]) & set(world.groups[second.group])


def _wrong_size(world: World, draw: random.Random, *, pair: bool = False) -> Injected | None:
    """In a pair either may be wrong, but for what other pairs of its kind do."""
    rank = draw.choice(sorted(world.ranks))
    own = world.ranks[rank]
    for _ in range(50):
        at = _late(own.program, draw)
        step = own.program[at]
        if step.peer is None and step.op not in ("barrier", "all_to_all"):
            if (len(world.groups[step.group]) == 2) != pair:
                continue
            changed = replace(
                step,
                input_size=tuple(size + 96 for size in step.input_size),
                output_size=tuple(size + 96 for size in step.output_size),
            )
            own.program = [*own.program[:at], changed, *own.program[at + 1 :]]
            return Injected("", frozenset({rank}))
    return None


def _both(world: World, draw: random.Random) -> Injected:
    hung = _hung(world, draw)
    rank = draw.choice(sorted(world.ranks.keys() - hung.ranks))
    _stall(world, rank, draw)
    return Injected("", hung.ranks | {rank})


_WAYS: dict[str, Callable[[World, random.Random], Injected | None]] = {
    "host stalled": _stalled,
    "process dead": _dead,
    "GPU hung": _hung,
    "link broken": _broken,
    "collective skipped": _skipped,
    "order swapped": _swapped,
    "order swapped on a minority": lambda world, draw: _swapped(world, draw, 4),
    "wrong size": _wrong_size,
    "wrong size in a pair": lambda world, draw: _wrong_size(world, draw, pair=True),
    "transfer skipped": lambda world, draw: _skipped(world, draw, transfers=True),
    "two hosts stalled": lambda world, draw: _stalled(world, draw, 2),
    "host stalled and GPU hung": _both,
    "healthy": lambda _world, _draw: Injected("", frozenset()),
}
