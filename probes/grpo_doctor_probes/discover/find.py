"""Finds the training jobs of this host, or the one that some processes belong to."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from pathlib import Path

from grpo_doctor_probes.discover.assemble import Assembler, Survey
from grpo_doctor_probes.discover.candidates import (
    RAY_THREADS,
    Candidate,
    find_candidates,
    has_threads,
)
from grpo_doctor_probes.discover.commands import (
    Kind,
    framework_by_command,
    framework_by_script,
    is_agent,
    is_called_actor,
    kind_of,
)
from grpo_doctor_probes.discover.explain import (
    no_such_member,
    nothing_found,
    nothing_readable,
    only_helpers_left,
)
from grpo_doctor_probes.discover.grouping import Ties, core_of, group_jobs
from grpo_doctor_probes.discover.ranks import Cast, cast, may_train
from grpo_doctor_probes.discover.remains import Remains
from grpo_doctor_probes.discover.scan import Process, Tree, scan
from grpo_doctor_probes.discover.sockets import Sockets, find_servers, meeting_point
from grpo_doctor_probes.evidence import Job

_RAY_CORE = ("raylet", "gcs_server")
_MOST_ASKED = 64


def find_alone(
    cast: Cast, candidates: Mapping[int, Candidate], tree: Tree, proc: Path, pids: Sequence[int]
) -> Cast:
    """`cast` with rank 0 for every process that trains alone.

    One that the user names (or a parent of whose she names) only has to have torch; others must
    belong to a launcher, or run a framework for GRPO: not every process with torch is training.
    """
    chosen = {above for pid in pids for above in (pid, *tree.ancestors(pid))}
    trainers = cast.ranks.keys() | cast.launchers | cast.lost.keys()
    alone: list[int] = []
    for pid, candidate in candidates.items():
        if not candidate.torch or pid in trainers or not may_train(candidate, candidates, tree):
            continue
        if tree.nearest(pid, {**candidates, **cast.ranks}) in trainers:
            continue
        parent = candidates.get(candidate.process.parent)
        launched = parent is not None and parent.kind == "launcher"
        if pid in chosen or launched or _is_training(proc, candidate):
            alone.append(pid)
    tops = {pid: 0 for pid in alone if tree.nearest(pid, alone) is None}
    return replace(cast, ranks={**cast.ranks, **tops})


def _is_training(proc: Path, candidate: Candidate) -> bool:
    by_command = framework_by_command([candidate.process])
    return by_command != "unknown" or framework_by_script(proc, candidate.process) != "unknown"


def recognise_parents(
    candidates: dict[int, Candidate], processes: Mapping[int, Process], left_out: frozenset[int]
) -> None:
    """Give the Python parents of Ray's daemons and of engine cores their kind, in `candidates`.

    An engine core below a rank works for that rank alone, which stays what it is.
    """
    for process in processes.values():
        parent = processes.get(process.parent)
        if parent is None or not parent.python or parent.pid in left_out:
            continue
        candidate = candidates.get(parent.pid, Candidate(parent, "unknown", parent.environment))
        kind: Kind | None = "ray" if process.name in _RAY_CORE else None
        if kind is None and kind_of(process.name, process.arguments) == "engine":
            kind = "server"
        if kind is None or candidate.kind != "unknown":
            continue
        above = processes.get(parent.parent)
        if above is not None and kind_of(above.name, above.arguments) == "server":
            continue
        if kind == "ray" or not _may_be_rank(candidate):
            candidates[parent.pid] = replace(candidate, kind=kind)


def _may_be_rank(candidate: Candidate) -> bool:
    return (
        candidate.grouped
        or candidate.rank is not None
        or (candidate.torch and framework_by_command([candidate.process]) != "unknown")
        or kind_of(candidate.process.name, candidate.process.arguments)
        not in ("unknown", "ourselves")
    )


def find_jobs(
    pids: Sequence[int] = (),
    proc: Path = Path("/proc"),
    joins: Callable[[int], object] = lambda _pid: False,
) -> tuple[Job, ...]:
    """Return the jobs on this host, those with most ranks first.

    Args:
        pids: Processes of the job that is wanted, of any role; several are taken to be of one job
            unless they have the same ranks. A process that is of no job, but started one, stands
            for that. None: all jobs but those of which only helpers are left; where nothing
            trains, launchers that wait, and else programs of Ray whose ranks do not exist yet.
        proc: Where procfs is mounted.
        joins: Asked where nothing else trains: whether a process joins a process group just now.

    Raises:
        NoJobError: there is no such process, it is of no job, or there is no job.
        NoPermissionError: there is a job, but nothing of it may be read.
    """
    search = _Search(proc, pids)
    for pid in pids:
        if pid in search.surely_left:
            raise only_helpers_left(search.helpers_left.values(), pid)
        if not search.groups_of(pid):
            raise no_such_member(pid, search.tree.processes.get(pid), proc)
    if pids:
        groups = {core for pid in pids for core in search.groups_of(pid)}
    else:
        groups = search.training() or search.waiting() or search.driving()
        if not groups and (makers := search.starting(joins)):
            return tuple(job for maker in makers for job in find_jobs((maker,), proc))
    if not groups:
        if search.helpers_left:
            raise only_helpers_left(search.helpers_left.values())
        raise nothing_found(search.tree.processes.values(), proc)
    jobs = sorted(
        map(search.job, groups),
        key=lambda job: (-len(job.ranks()), min(m.started_ticks for m in job.members)),
    )
    readable = [job for job in jobs if any(member.readable for member in job.members)]
    if not readable:
        raise nothing_readable(jobs[0], proc)
    return tuple(readable)


class _Search:
    """One inspection of the host: its processes, partitioned into jobs."""

    def __init__(self, proc: Path, pids: Sequence[int]) -> None:
        processes = scan(proc)
        self.tree = Tree(processes)
        left_out = frozenset(_ourselves(proc, self.tree))
        candidates = find_candidates(proc, processes, left_out)
        recognise_parents(candidates, processes, left_out)
        self._sockets = Sockets(proc)
        self._cast = find_alone(
            cast(candidates, self.tree, left_out), candidates, self.tree, proc, pids
        )
        self._core = core_of(candidates, self._cast)
        self._sockets.add(sorted(self._core, key=lambda pid: processes[pid].started_ticks))
        links = [
            connection
            for pid in sorted(self._core)
            for connection in self._sockets.connections(pid)
        ]
        spaces = {pid: self._sockets.space(pid) for pid in {**self._cast.ranks, **self._cast.lost}}
        together = [top for pid in pids if (top := self._top_of(pid)) is not None]
        self._groups = group_jobs(candidates, self._cast, self.tree, Ties(spaces, links, together))
        remains = Remains(proc, self.tree, candidates, self._cast, links)
        self._remains = frozenset().union(*filter(remains.is_left, self._groups))
        workers = remains.workers()
        self.surely_left = set(filter(remains.only_inherits, self._remains))
        self.surely_left |= workers - self._core
        self.helpers_left = {pid: processes[pid] for pid in sorted(self._remains | workers)}
        self._servers = find_servers(
            self._cast.ranks, self._core, self.tree, left_out, self._sockets
        )
        self._assembler = Assembler(Survey(proc, self.tree, candidates, self._cast))
        self._proc, self._candidates, self._left_out = proc, candidates, left_out

    def training(self) -> set[frozenset[int]]:
        """Return the groups in which something trains."""
        trainers = self._cast.ranks.keys() - self._remains
        return {core for core in self._groups if core & trainers}

    def waiting(self) -> set[frozenset[int]]:
        """The groups of torch's launchers which have started no rank here, or have none left."""
        processes = [self.tree.processes[pid] for pid in self._core]
        agents = {process.pid for process in processes if is_agent(process.name, process.arguments)}
        ranks = self._cast.ranks.keys()
        return {core for core in self._groups if core & agents and not core & ranks}

    def driving(self) -> set[frozenset[int]]:
        """Return the groups of Ray with a program that starts actors, or with an actor in a call.

        An engine that loads, or a placement that is pending, keeps a job from having any rank.
        """
        in_ray = {pid for pid, candidate in self._candidates.items() if candidate.kind == "ray"}
        alive = [
            pid
            for pid, process in self.tree.processes.items()
            if pid not in self._left_out and process.readable
            if is_called_actor(process.arguments)
            or (pid in in_ray and has_threads(self._proc, pid, RAY_THREADS))
        ]
        return {core for pid in alive if (core := self._group_of(pid)) is not None}

    def starting(self, joins: Callable[[int], object]) -> list[int]:
        """Return the programs that started ranks of which none is in a process group yet."""
        torch = [each.process for each in self._candidates.values() if each.torch]
        by_hand = [process for process in torch if process.parent in self._candidates]
        return sorted({each.parent for each in by_hand[:_MOST_ASKED] if joins(each.pid)})

    def groups_of(self, pid: int) -> set[frozenset[int]]:
        """Return the group of a process; for one that is of none, those of its descendants."""
        if (core := self._group_of(pid)) is not None:
            return {core}
        below = self.tree.descendants(pid) if pid > 1 else set()
        return self.training() & set(map(self._group_of, below))

    def job(self, core: frozenset[int]) -> Job:
        """Return the job of a group."""
        ranks = {pid: None for pid in self._cast.ranks if pid in core}
        servers = frozenset(pid for pid, clients in self._servers.items() if clients & ranks.keys())
        tops, all_tops = core | servers, self._core | servers
        pids = [
            pid
            for pid, process in self.tree.processes.items()
            if pid not in self._left_out
            and not process.kernel
            and (pid in tops or self.tree.nearest(pid, all_tops) in tops)
        ]
        address = meeting_point(ranks, core, self._sockets)
        return self._assembler.job(core, pids, servers, address)

    def _group_of(self, pid: int) -> frozenset[int] | None:
        top, clients = self._top_of(pid), self._servers.get(pid, set())
        return next((core for core in self._groups if top in core or clients & core), None)

    def _top_of(self, pid: int) -> int | None:
        return pid if pid in self._core else self.tree.nearest(pid, self._core)


def _ourselves(proc: Path, tree: Tree) -> Iterable[int]:
    """This process and its parents, and every other run of this tool: none of them is the job.

    A task of Ray's, as which `attach --ray` runs, has the job's own raylet as parent.
    """
    with contextlib.suppress(OSError, ValueError):
        own = int(os.readlink(proc / "self"))  # noqa: PTH115 - it is a number, not a path
        yield own
        above = (tree.processes.get(pid) for pid in tree.ancestors(own))
        for process in takewhile(lambda p: p is None or p.name not in _RAY_CORE, above):
            if process is not None:
                yield process.pid
    for pid, process in tree.processes.items():
        if kind_of(process.name, process.arguments) == "ourselves":
            yield pid
