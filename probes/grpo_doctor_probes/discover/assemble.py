"""Makes a `Job` of a group of processes: members with roles and ranks, sizes, versions, notes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from grpo_doctor_probes.discover.candidates import Candidate
from grpo_doctor_probes.discover.commands import (
    command_text,
    framework_by_command,
    framework_by_script,
    is_ray_actor,
    kind_of,
)
from grpo_doctor_probes.discover.modules import read_modules, torch_version
from grpo_doctor_probes.discover.ranks import Cast
from grpo_doctor_probes.discover.scan import Process, Tree
from grpo_doctor_probes.discover.world import (
    common_address,
    expected_ranks,
    main_world,
    number_all,
    sizes_of,
)
from grpo_doctor_probes.evidence import Job, Member, Role
from grpo_doctor_probes.procs.bounded import unless_blocked
from grpo_doctor_probes.procs.printable import NAME_LIMIT, printable
from grpo_doctor_probes.procs.procfs import link
from grpo_doctor_probes.record.rundir import RUN_DIR_VARIABLE

_RANK_NAMES = ("python", "pypy", "pt_main")
_BELOW_SERVER: Mapping[str, Role] = {"server": "engine", "engine": "engine-worker"}
_PATIENCE_S = 1.0


@dataclass(frozen=True, slots=True)
class Survey:
    """What the search knows of the whole host."""

    proc: Path
    tree: Tree
    candidates: Mapping[int, Candidate]
    cast: Cast


def roles_of(
    processes: Mapping[int, Process],
    survey: Survey,
    known: Mapping[int, Role],
    absent: int | None,
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
        self._torch_of: dict[tuple[str, str], str] = {}

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
        address = common_address(main.values()) or address
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
            torch=self._torch(process) if candidate is not None and candidate.torch else "",
            readable=process.readable,
        )

    def _torch(self, process: Process) -> str:
        """Return torch's version; maps are read once for each folder of it."""
        if process.dead:
            return ""
        proc, pid = self._survey.proc, process.pid
        key = process.executable, link(f"{proc}/{pid}/ns/mnt")
        if key not in self._torch_of:
            modules = unless_blocked(_PATIENCE_S, lambda: read_modules(proc, pid), None)
            version = unless_blocked(_PATIENCE_S, lambda: torch_version(proc, pid, modules), "")
            if modules is None or not modules.has_torch:  # it is just starting
                return version
            self._torch_of[key] = version
        return self._torch_of[key]

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
