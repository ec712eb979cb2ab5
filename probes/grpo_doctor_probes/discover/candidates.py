"""Those few processes of the host that may be part of a training job, and what they are."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from grpo_doctor_probes.discover.commands import Kind, is_ray_actor, kind_of
from grpo_doctor_probes.discover.modules import (
    environ_pointers,
    has_torch,
    live_environment,
    read_modules,
)
from grpo_doctor_probes.discover.scan import Process, number_in
from grpo_doctor_probes.procs.bounded import ask_each

# Threads that only a process which has joined a process group has (torch 2.2 to 2.15, NCCL 2.19+).
_GROUP_THREADS = ("pt_gloo", "gloo_", "pt_nccl", "NCCL ")
RAY_THREADS = ("worker.io",)  # of a process that has joined a Ray cluster (ray 2.60)
_PATIENCE_S = 2.0
# A single task of its step may be a shell, below which anything runs.
_TASKS = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
    ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"),
)


@dataclass(frozen=True, slots=True)
class Task:
    """One of several processes of MPI or of a step of Slurm; `local` is its number on its host."""

    number: int
    of: int
    local: int | None


@dataclass(frozen=True, slots=True)
class Candidate:
    """A process that may be part of a job.

    Attributes:
        environment: as it is now where we could read that, else as it was at exec.
        torch: whether it has libtorch, or is at least large enough.
        grouped: whether it has threads of a process group. Only asked where nothing else
        distinguishes a rank from what it forked: where RANK was set late, or no launcher has set
        it.
    """

    process: Process
    kind: Kind
    environment: Mapping[str, str]
    torch: bool = False
    grouped: bool = False

    @property
    def pid(self) -> int:
        """Its number."""
        return self.process.pid

    def number(self, *names: str) -> int | None:
        """Return the first of these variables that is a sensible number."""
        numbers = (number_in(self.environment, name) for name in names)
        return next((number for number in numbers if number is not None), None)

    @property
    def set_late(self) -> bool:
        """Whether its rank was set after exec: by itself, or by the one that forked it."""
        return "RANK" not in self.process.environment

    @property
    def rank(self) -> int | None:
        """The rank that it says it is; it may only have inherited that."""
        rank = self.number("RANK")
        if rank is not None and self.number("LOCAL_RANK", "WORLD_SIZE") is not None:
            return rank
        if self.grouped and rank is not None:
            return rank
        return None if self.task is None else self.task.number

    @property
    def world(self) -> int | None:
        """The world size in its environment."""
        size = self.number("WORLD_SIZE")
        return self.task.of if size is None and self.task is not None else size

    @property
    def local(self) -> int | None:
        """Its number among the ranks of its host."""
        local = self.number("LOCAL_RANK")
        return self.task.local if local is None and self.task is not None else local

    @property
    def only_task(self) -> bool:
        """Whether its rank is but its number among tasks: all that a task starts inherits that."""
        return self.number("RANK") is None and self.task is not None

    @property
    def task(self) -> Task | None:
        """What MPI or Slurm has started it as; None for a worker of Ray, which Slurm did not."""
        if not self.torch or is_ray_actor(self.process.arguments):
            return None
        for number, size, local in _TASKS:
            index, of = self.number(number), self.number(size)
            if index is not None and of is not None and index < of and of > 1:
                return Task(index, of, self.number(local))
        return None


def find_candidates(
    proc: Path, processes: Mapping[int, Process], left_out: frozenset[int]
) -> dict[int, Candidate]:
    """Look closer at Python processes that are large or have a rank, and at known programs."""
    look = _Look(proc, processes)
    pids = [
        pid
        for pid, process in processes.items()
        if not (process.kernel or process.dead or process.problem or pid in left_out)
    ]
    candidates, _ = ask_each(pids, look.at, _PATIENCE_S)
    return {pid: candidate for pid, candidate in candidates.items() if candidate is not None}


class _Look:
    """Reads maps once for each exec: processes forked from one another share their libraries."""

    def __init__(self, proc: Path, processes: Mapping[int, Process]) -> None:
        self._proc = proc
        self._processes = processes
        self._pointers: dict[tuple[int, int], tuple[int, ...]] = {}

    def at(self, pid: int) -> Candidate | None:
        process = self._processes[pid]
        kind = kind_of(process.name, process.arguments)
        if kind not in ("unknown", "ourselves", "helper"):
            return Candidate(process, kind, process.environment)
        if kind != "unknown" or not process.python:
            return None
        large = process.large
        # Of a Ray actor what it was started with is not all: it sets its rendezvous itself.
        late = large and is_ray_actor(process.arguments)
        environment = process.environment
        if environment.get("RANK") and not late:
            grouped = self._may_only_inherit(process) and has_threads(
                self._proc, pid, _GROUP_THREADS
            )
            return Candidate(process, kind, environment, torch=large, grouped=grouped)
        candidate = self._large(process) if large and process.readable else None
        if candidate is None and not process.readable:
            return self._unreadable(process)
        return candidate

    def _large(self, process: Process) -> Candidate | None:
        """Return one with torch, and the driver of Ray's actors, which may do without."""
        in_ray = is_ray_actor(process.arguments)
        drives = not in_ray and has_threads(self._proc, process.pid, RAY_THREADS)
        if (pointers := self._pointers_of(process)) is None:
            return Candidate(process, "ray", process.environment) if drives else None
        live = live_environment(self._proc, process.pid, pointers)
        grouped = has_threads(self._proc, process.pid, _GROUP_THREADS)
        environment = {**process.environment, **live}
        candidate = Candidate(process, "unknown", environment, torch=True, grouped=grouped)
        is_driver = drives and not grouped and candidate.rank is None
        return replace(candidate, kind="ray") if is_driver else candidate

    def _may_only_inherit(self, process: Process) -> bool:
        """Whether it has its rank from no launcher: an orphan, or below a program that has it."""
        parent = self._processes.get(process.parent)
        if parent is None or not parent.python:
            return True
        same_rank = parent.environment.get("RANK") == process.environment.get("RANK")
        return not process.forked and same_rank

    def _unreadable(self, process: Process) -> Candidate | None:
        """Return a child of a launcher is a rank, regardless of its owner."""
        parent = self._processes.get(process.parent)
        if parent is None or kind_of(parent.name, parent.arguments) != "launcher":
            return None
        return Candidate(process, "unknown", {}, torch=True, grouped=True)

    def _pointers_of(self, process: Process) -> tuple[int, ...] | None:
        """Return where the environment of a process with libtorch is; None for any other."""
        if process.image is not None and process.image in self._pointers:
            return self._pointers[process.image]
        modules = read_modules(self._proc, process.pid)
        if modules is None or not has_torch(modules):
            return None
        pointers = environ_pointers(self._proc, process, modules)
        if process.image is not None:
            self._pointers[process.image] = pointers
        return pointers


def has_threads(proc: Path, pid: int, names: tuple[str, ...]) -> bool:
    """Return whether a thread's name begins with one of these."""
    folder = f"{proc}/{pid}/task"
    try:
        for tid in os.listdir(folder):  # noqa: PTH208 - hundreds of threads
            with open(f"{folder}/{tid}/comm", "rb") as file:  # noqa: PTH123 - the same
                if file.read(16).decode("utf-8", "replace").startswith(names):
                    return True
    except OSError:
        return False  # it ends just now, or is not ours to read
    return False
