"""Makes a `Job` of a group of processes: members with roles and ranks, sizes, versions, notes.

First the worker group that trains: which processes, of how many, where they meet, and the numbers
of ranks that do not say them.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from grpo_doctor_probes.discover.candidates import Candidate
from grpo_doctor_probes.discover.commands import (
    Sizes,
    command_text,
    framework_by_command,
    framework_by_script,
    is_ray_actor,
    kind_of,
    launcher_sizes,
)
from grpo_doctor_probes.discover.grouping import address_of
from grpo_doctor_probes.discover.ranks import Cast
from grpo_doctor_probes.discover.scan import Process, Tree
from grpo_doctor_probes.evidence import Job, Member, Role
from grpo_doctor_probes.procs.printable import NAME_LIMIT, printable
from grpo_doctor_probes.record.rundir import RUN_DIR_VARIABLE

_LOCAL_SIZES = (
    "LOCAL_WORLD_SIZE", "RAY_LOCAL_WORLD_SIZE", "LOCAL_SIZE",
    "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS",
)  # fmt: skip
NUMBERED_BY_START = "No process has a rank number: they are numbered in the order of their start."


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
        return dict(zip(unknown, range(len(unknown)))), NUMBERED_BY_START
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
        # `accelerate launch --cpu` starts one process, whatever number it is given.
        and not any(trainer.rank is None and trainer.process.readable for trainer in trainers)
    ]
    world = max(worlds or [size.world for size in sizes if size.world] or [0]) or None
    local = sum(nodes.values()) or max([size.local for size in sizes if size.local] or [0]) or None
    if local is None and is_loopback(address):
        local = world
    return Sizes(world, local)


def is_loopback(address: str) -> bool:
    """Return whether only processes of this host can meet at `HOST:PORT`."""
    host = address.rpartition(":")[0]
    return host in ("localhost", "::1", "ip6-localhost") or host.startswith("127.")


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


_RANK_NAMES = ("python", "pypy", "pt_main")
_BELOW_SERVER: Mapping[str, Role] = {"server": "engine", "engine": "engine-worker"}


@dataclass(frozen=True, slots=True)
class Survey:
    """What the search knows of the whole host."""

    proc: Path
    tree: Tree
    candidates: Mapping[int, Candidate]
    cast: Cast


def roles_of(
    processes: Mapping[int, Process], survey: Survey, known: Mapping[int, Role], absent: int | None
) -> dict[int, Role]:
    """Return the role of each process of a job.

    Args:
        processes: Of the job, by PID.
        survey: Of the host.
        known: Ranks of the training, those of another group or attempt, servers of ranks.
        absent: How many ranks should be here and are not; None where unknown.
    """
    roles = {**known}
    for pid, process in processes.items():
        if pid not in known and (role := _own_role(process, survey)) is not None:
            roles[pid] = role
    for pid in sorted(processes, key=lambda pid: (processes[pid].started_ticks, pid)):
        if pid not in roles:
            roles[pid] = _by_parent(processes[pid], roles)
    for pid in _dead_ranks(processes, roles, survey.tree, absent):
        roles[pid] = "rank"
    return roles


def _own_role(process: Process, survey: Survey) -> Role | None:
    candidate = survey.candidates.get(process.pid)
    kind = candidate.kind if candidate else kind_of(process.name, process.arguments)
    if kind != "unknown" and kind != "ourselves":  # noqa: PLR1714 - mypy narrows only this
        return kind
    return "ray" if is_ray_actor(process.arguments) else None


def _by_parent(process: Process, roles: Mapping[int, Role]) -> Role:
    if process.python and process.large:
        return _BELOW_SERVER.get(roles.get(process.parent, "helper"), "helper")
    return "helper"


def _dead_ranks(
    processes: Mapping[int, Process], roles: Mapping[int, Role], tree: Tree, absent: int | None
) -> list[int]:
    """Zombies of a launcher that were ranks. Nothing is left of them but a name, so those that are
    called like a living rank come first, and no more than are absent."""
    dead = []
    for pid, process in processes.items():
        if roles[pid] == "helper" and process.dead and roles.get(process.parent) == "launcher":
            family = {child.name for child in tree.children(process.parent) if not child.dead}
            alike = process.name in family or process.name.startswith(_RANK_NAMES)
            if alike or absent:
                dead.append((not alike, process.started_ticks, pid))
    return [pid for _, _, pid in sorted(dead)[:absent]]


class Assembler:
    """Makes jobs; what processes share is read once for all of them."""

    def __init__(self, survey: Survey) -> None:
        self._survey = survey

    def job(
        self, core: frozenset[int], pids: Iterable[int], servers: frozenset[int], address: str
    ) -> Job:
        """Return the job of these processes.

        Args:
            core: Its ranks, launchers, engines and servers.
            pids: All its processes.
            servers: Which of `core` serve it without having been known for that.
            address: Where its ranks were seen to meet, empty if nowhere.
        """
        survey = self._survey
        processes = {pid: survey.tree.processes[pid] for pid in pids}
        trainers = {pid: survey.candidates[pid] for pid in core if pid in survey.cast.ranks}
        main, second = main_world(trainers, survey.cast)
        counts = Counter(own for trainer in main.values() if (own := address_of(trainer)))
        address = min(counts, key=lambda text: (-counts[text], text), default=address)
        sizes = sizes_of(main.values(), [processes[pid] for pid in core], address)
        expected = expected_ranks(main.values(), sizes)
        absent = len(set(expected) - {survey.cast.ranks[pid] for pid in main}) if expected else None
        known: dict[int, Role] = dict.fromkeys(servers & processes.keys(), "server")
        known |= dict.fromkeys(survey.cast.launchers & processes.keys(), "launcher")
        for pid in second:
            known[pid] = "ray" if is_ray_actor(processes[pid].arguments) else "helper"
        known |= dict.fromkeys(main, "rank")
        roles = roles_of(processes, survey, known, absent)
        raw = {pid: survey.cast.ranks.get(pid) for pid, role in roles.items() if role == "rank"}
        ranks, guessed = number_all(raw, processes, expected)
        members = tuple(
            self._member(process, roles[pid], _rank_of(pid, ranks, survey), ranks)
            for pid, process in sorted(processes.items())
        )
        world, present = sizes.world, set(ranks.values())
        return Job(
            host=os.uname().nodename,
            members=members,
            world_size=world,
            local_ranks=sizes.local,
            ranks_missing=tuple(r for r in range(world or 0) if r not in present),
            framework=self._framework(processes, main),
            address=printable(address, 256),
            run_dir=_run_dir(main.values()),
            notes=(*filter(None, [guessed]), *_notes(ranks, world, members)),
        )

    def _member(
        self, process: Process, role: str, rank: int | None, ranks: Mapping[int, int | None]
    ) -> Member:
        candidate = self._survey.candidates.get(process.pid)
        return Member(
            pid=process.pid,
            parent=process.parent,
            started_ticks=process.started_ticks,
            role=role,  # type: ignore[arg-type]
            name=printable(process.name, NAME_LIMIT),
            command=command_text(process.arguments),
            rank=rank,
            local_rank=candidate.local if candidate and process.pid in ranks else None,
            uid=process.uid,
            readable=process.readable,
        )

    def _framework(self, processes: Mapping[int, Process], main: Mapping[int, Candidate]) -> str:
        by_command = framework_by_command(processes.values())
        if by_command != "unknown" or not main:
            return by_command
        return framework_by_script(self._survey.proc, main[min(main)].process)


def _rank_of(pid: int, ranks: Mapping[int, int | None], survey: Survey) -> int | None:
    """Return its own rank, or that of the nearest rank above it."""
    if pid in ranks:
        return ranks[pid]
    if pid in survey.cast.lost:
        return survey.cast.lost[pid]
    above = survey.tree.nearest(pid, {**ranks, **survey.cast.lost})
    return None if above is None else ranks.get(above, survey.cast.lost.get(above))


def _run_dir(trainers: Iterable[Candidate]) -> str:
    run_dirs = {trainer.environment.get(RUN_DIR_VARIABLE, "") for trainer in trainers} - {""}
    return next((path for path in sorted(run_dirs) if path.isprintable()), "")


def _notes(
    ranks: Mapping[int, int | None], world: int | None, members: Iterable[Member]
) -> Iterable[str]:
    beyond = sorted(r for r in ranks.values() if r is not None and world is not None and r >= world)
    if beyond:
        yield f"Ranks {beyond} are not below the world size of {world}."
    refused = [member.pid for member in members if not member.readable]
    if refused:
        yield f"{len(refused)} processes of the job can't be read: {refused[:8]}."
