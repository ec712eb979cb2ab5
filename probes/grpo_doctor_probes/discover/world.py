"""The worker group that trains: which processes, of how many, where they meet, and the numbers of
ranks that do not say them. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from grpo_doctor_probes.discover.candidates import Candidate
from grpo_doctor_probes.discover.commands import Sizes, kind_of, launcher_sizes
from grpo_doctor_probes.discover.grouping import address_of
from grpo_doctor_probes.discover.ranks import Cast
from grpo_doctor_probes.discover.scan import Process

_LOCAL_SIZES = (
    "LOCAL_WORLD_SIZE", "RAY_LOCAL_WORLD_SIZE", "LOCAL_SIZE",
    "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS",
)  # fmt: skip
_LOOPBACK = ("localhost", "::1", "ip6-localhost")


def number_all(
    ranks: Mapping[int, int | None], processes: Mapping[int, Process], expected: Sequence[int]
) -> tuple[dict[int, int | None], str]:
    """Give numbers to the ranks that have none, where only one order is possible or likely.

    Args:
        ranks: The number of each rank process, None where it is not known. Zombies included.
        processes: Of the host.
        expected: The ranks that this host should have; empty where unknown.

    Returns:
        The ranks by PID, and what had to be guessed, in words.
    """
    unknown = sorted(
        (pid for pid, rank in ranks.items() if rank is None),
        key=lambda pid: (processes[pid].started_ticks, pid),
    )
    if not unknown:
        return dict(ranks), ""
    if len(unknown) == len(ranks):
        if len({processes[pid].parent for pid in unknown}) > 1:
            return dict(ranks), "No process has a rank number."
        note = "No process has a rank number: they are numbered in the order of their start."
        return dict(zip(unknown, range(len(unknown)))), note
    free = [rank for rank in expected if rank not in ranks.values()]
    if len(free) != len(unknown):
        lost = "; ".join(f"process {pid} is a rank of unknown number" for pid in unknown)
        return dict(ranks), f"{lost}."
    numbers = dict(zip(unknown, free))
    given = (f"process {pid} is rank {numbers[pid]} (no other is free)" for pid in unknown)
    return {**ranks, **numbers}, "; ".join(given) + "."


def main_world(
    trainers: Mapping[int, Candidate], cast: Cast
) -> tuple[dict[int, Candidate], dict[int, Candidate]]:
    """Return the worker group that trains, and those of other models (reference, critic).

    Several groups in one Ray job number their processes from 0; so do a launcher's old and new
    attempts. The largest counts, the older of two, and one process for each rank.
    """
    worlds: dict[tuple[str, str], dict[int, Candidate]] = {}
    for pid, trainer in trainers.items():
        attempt = trainer.environment.get("TORCHELASTIC_RESTART_COUNT", "")
        worlds.setdefault((address_of(trainer), attempt), {})[pid] = trainer
    if len(trainers) == len({cast.ranks[pid] for pid in trainers} - {None}):
        return dict(trainers), {}
    largest, *smaller = sorted(
        worlds.values(),
        key=lambda world: (
            -len(world),
            -max(each.number("TORCHELASTIC_RESTART_COUNT") or 0 for each in world.values()),
            min(each.process.started_ticks for each in world.values()),
        ),
    )
    main: dict[int, Candidate] = {}
    second: dict[int, Candidate] = {}
    ranks: set[int | None] = set()
    for pid, trainer in sorted(largest.items(), key=lambda item: item[1].process.started_ticks):
        rank = cast.ranks[pid]
        (second if rank in ranks else main)[pid] = trainer
        ranks |= {rank} - {None}
    for world in smaller:
        for pid, trainer in world.items():
            (main if cast.ranks[pid] is None else second)[pid] = trainer
    return main, second


def common_address(trainers: Iterable[Candidate]) -> str:
    """Return the rendezvous that most ranks name."""
    counts = Counter(address for trainer in trainers if (address := address_of(trainer)))
    return min(counts, key=lambda text: (-counts[text], text)) if counts else ""


def sizes_of(trainers: Iterable[Candidate], core: Iterable[Process], address: str) -> Sizes:
    """World and local size: from the ranks, else from their launchers' options."""
    trainers = list(trainers)
    worlds = [size for trainer in trainers if (size := trainer.world) is not None]
    nodes: dict[str, int] = {}
    for trainer in trainers:
        if size := trainer.number(*_LOCAL_SIZES):
            nodes[trainer.environment.get("GROUP_RANK", "")] = size
    sizes = [
        launcher_sizes(process.arguments)
        for process in core
        if kind_of(process.name, process.arguments) == "launcher"
    ]
    world = max(worlds or [size.world for size in sizes if size.world] or [0]) or None
    local = sum(nodes.values()) or max([size.local for size in sizes if size.local] or [0]) or None
    host = address.rpartition(":")[0]
    if local is None and (host in _LOOPBACK or host.startswith("127.")):
        local = world
    return Sizes(world, local)


def expected_ranks(trainers: Iterable[Candidate], sizes: Sizes) -> list[int]:
    """Return the ranks that this host should have, where they are known for certain."""
    if sizes.world is not None and sizes.world == sizes.local:
        return list(range(sizes.world))
    groups = {trainer.number("GROUP_RANK") for trainer in trainers}
    if sizes.local is None or len(groups) != 1 or None in groups:
        return []
    (group,) = groups
    assert group is not None
    return list(range(group * sizes.local, (group + 1) * sizes.local))
