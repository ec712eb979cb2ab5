"""Makes a `Job` of a group of processes: members with roles and ranks, sizes, versions, notes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from grpo_doctor_probes.discover.candidates import Candidate
from grpo_doctor_probes.discover.commands import command_text
from grpo_doctor_probes.discover.container import Containers
from grpo_doctor_probes.discover.frameworks import framework_by_command, framework_by_script
from grpo_doctor_probes.discover.modules import (
    Modules,
    python_version,
    read_modules,
    torch_version,
)
from grpo_doctor_probes.discover.numbering import number_all
from grpo_doctor_probes.discover.patience import unless_blocked
from grpo_doctor_probes.discover.ranks import Cast
from grpo_doctor_probes.discover.roles import Parts, roles_of
from grpo_doctor_probes.discover.scan import Process
from grpo_doctor_probes.discover.tree import Tree
from grpo_doctor_probes.discover.world import (
    common_address,
    expected_ranks,
    main_world,
    sizes_of,
)
from grpo_doctor_probes.evidence import Job, Member
from grpo_doctor_probes.printable import NAME_LIMIT, printable
from grpo_doctor_probes.rundir import RUN_DIR_VARIABLE

_PATIENCE_S = 1.0


@dataclass(frozen=True, slots=True)
class Found:
    """What the search knows of the whole host."""

    proc: Path
    tree: Tree
    candidates: Mapping[int, Candidate]
    cast: Cast


class Assembler:
    """Makes jobs; what processes share is read once for all of them."""

    def __init__(self, found: Found) -> None:
        self._found = found
        self._containers = Containers(found.proc)
        self._versions: dict[tuple[str, str, str], tuple[str, str]] = {}

    def job(
        self, core: frozenset[int], pids: Iterable[int], servers: frozenset[int], address: str
    ) -> Job:
        """The job of these processes.

        Args:
            core: Its ranks, launchers, engines and servers.
            pids: All its processes.
            servers: Which of `core` serve it without having been known for that.
            address: Where its ranks were seen to meet, empty if nowhere.
        """
        found = self._found
        processes = {pid: found.tree.processes[pid] for pid in pids}
        trainers = {pid: found.candidates[pid] for pid in core if pid in found.cast.ranks}
        main, others = main_world(trainers, found.cast)
        address = common_address(main.values()) or address
        sizes = sizes_of(main.values(), [processes[pid] for pid in core], address)
        expected = expected_ranks(main.values(), sizes)
        known = {found.cast.ranks[pid] for pid in main}
        absent = len(set(expected) - known) if expected else None
        roles = roles_of(processes, found, Parts(main, others, servers, absent))
        raw = {pid: found.cast.ranks.get(pid) for pid, role in roles.items() if role == "rank"}
        numbering = number_all(raw, processes, expected)
        ranks = dict(numbering.ranks)
        members = tuple(
            self._member(process, roles[pid], _rank_of(pid, ranks, found), ranks)
            for pid, process in sorted(processes.items())
        )
        seen = {rank for rank in ranks.values() if rank is not None}
        world = sizes.world
        return Job(
            host=os.uname().nodename,
            members=members,
            world_size=world,
            local_ranks=sizes.local,
            ranks_missing=tuple(r for r in range(world or 0) if r not in seen),
            framework=self._framework(processes, main),
            address=printable(address, 256),
            run_dir=_run_dir(main.values()),
            notes=(*numbering.notes, *_notes(numbering.ranks, world, members)),
        )

    def _member(
        self, process: Process, role: str, rank: int | None, ranks: Mapping[int, int | None]
    ) -> Member:
        candidate = self._found.candidates.get(process.pid)
        python, torch = self._software(process, candidate)
        return Member(
            pid=process.pid,
            parent=process.parent,
            started_ticks=process.started_ticks,
            role=role,  # type: ignore[arg-type]
            name=printable(process.name, NAME_LIMIT),
            command=command_text(process.arguments),
            rank=rank,
            local_rank=_local_rank(candidate) if process.pid in ranks else None,
            uid=process.uid,
            python=python,
            torch=torch,
            container="" if process.dead else self._containers.of(process.pid),
            readable=process.readable,
        )

    def _software(self, process: Process, candidate: Candidate | None) -> tuple[str, str]:
        """Python's and torch's versions; maps are read once for each program and command."""
        if not process.python or process.dead:
            return "", ""
        if candidate is None or not candidate.torch:
            return python_version(process.executable, None), ""
        container = self._containers.of(process.pid)
        key = (process.executable, process.arguments[0] if process.arguments else "", container)
        if key not in self._versions:
            proc, pid = self._found.proc, process.pid
            modules = unless_blocked(_PATIENCE_S, lambda: read_modules(proc, pid), None)
            self._versions[key] = (
                python_version(process.executable, modules),
                unless_blocked(_PATIENCE_S, lambda: torch_version(proc, pid, modules), ""),
            )
            if _is_starting(modules):
                return self._versions.pop(key)
        return self._versions[key]

    def _framework(self, processes: Mapping[int, Process], main: Mapping[int, Candidate]) -> str:
        by_command = framework_by_command(processes.values())
        if by_command != "unknown" or not main:
            return by_command
        first = main[min(main)].process
        proc = self._found.proc
        return unless_blocked(_PATIENCE_S, lambda: framework_by_script(proc, first), "unknown")


def _is_starting(modules: Modules | None) -> bool:
    return modules is None or not modules.has_torch


def _rank_of(pid: int, ranks: Mapping[int, int | None], found: Found) -> int | None:
    """Its own rank, or that of the nearest rank above it."""
    if pid in ranks:
        return ranks[pid]
    if pid in found.cast.lost:
        return found.cast.lost[pid]
    above = found.tree.nearest(pid, {**ranks, **found.cast.lost})
    return None if above is None else ranks.get(above, found.cast.lost.get(above))


def _local_rank(candidate: Candidate | None) -> int | None:
    if candidate is None:
        return None
    told = candidate.number("LOCAL_RANK")
    return candidate.task.local if told is None and candidate.task is not None else told


def _run_dir(trainers: Iterable[Candidate]) -> str:
    found = {one.environment.get(RUN_DIR_VARIABLE, "") for one in trainers} - {""}
    return next((path for path in sorted(found) if path.isprintable()), "")


def _notes(
    ranks: Mapping[int, int | None], world: int | None, members: Iterable[Member]
) -> Iterable[str]:
    beyond = sorted(r for r in ranks.values() if r is not None and world is not None and r >= world)
    if beyond:
        yield f"Ranks {beyond} are not below the world size of {world}."
    refused = [member.pid for member in members if not member.readable]
    if refused:
        yield f"{len(refused)} processes of the job may not be read: {refused[:8]}."
