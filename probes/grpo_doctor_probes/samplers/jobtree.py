"""Finds the processes of the job, read from /proc/<pid>, and the rank that each one works for.

Formats: proc_pid_stat(5), environ(5).
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from grpo_doctor_probes.discover.scan import number_in, parse_environment
from grpo_doctor_probes.procs.live import rank_facts
from grpo_doctor_probes.procs.procfs import numbers, read_record
from grpo_doctor_probes.procs.procstat import CLOCK_TICKS_PER_S, Stat, read_stat
from grpo_doctor_probes.record.rundir import RANKS, RUN_DIR_VARIABLE

# Between fork and exec a process shows its parent's environment, so it is read again while young.
SETTLED_NS = 5_000_000_000
YOUNG_S = 2.0


class Process:
    """A process, known by its number and its start. Raises OSError at construction if it has ended.

    A number that was given to another process is that one's: this one has ended then.
    """

    def __init__(self, pid: int, proc: Path, now_ns: int) -> None:
        self.pid = pid
        self._folder = proc / str(pid)
        self._seen_ns = now_ns
        self.environment: Mapping[str, str] = {}
        first = read_stat(self._folder)
        if first.dead:
            raise ProcessLookupError(f"process {pid} has ended")
        self.parent, self.started_ticks = first.parent, first.started_ticks
        self.read_environment(now_ns)

    def usage(self) -> Stat | None:
        """Return what it has used up to now; None when it has ended."""
        try:
            stat = read_stat(self._folder)
        except (FileNotFoundError, ProcessLookupError):
            return None
        return None if stat.dead or stat.started_ticks != self.started_ticks else stat

    def main_thread_waited_ns(self) -> int | None:
        """How long its main thread has been in a run queue, ready and without a CPU; None where the
        kernel does not report it (/proc/<pid>/schedstat, second number)."""
        try:
            return int(read_record(self._folder / "schedstat").split()[1])
        except (OSError, ValueError, IndexError):
            return None

    def processors(self) -> int | None:
        """Return how many CPUs it may run on; None where that can't be asked."""
        with contextlib.suppress(OSError):
            return len(os.sched_getaffinity(self.pid))
        return None

    def read_environment(self, now_ns: int) -> None:
        """Read the environment while it may still change; other users' stays unknown."""
        if now_ns - self._seen_ns <= SETTLED_NS:
            with contextlib.suppress(OSError):
                self.environment = parse_environment((self._folder / "environ").read_bytes())

    def is_young(self) -> bool:
        """Return whether it was started so lately that it may be between fork and exec."""
        running_s = time.clock_gettime(time.CLOCK_BOOTTIME) - self.started_ticks / CLOCK_TICKS_PER_S
        return running_s < YOUNG_S


# What is the same for all tasks of a launch, and the number of each on its host.
_TASKS = (
    (("SLURM_JOB_ID", "SLURM_STEP_ID"), "SLURM_LOCALID"),
    (("PMIX_NAMESPACE",), "OMPI_COMM_WORLD_LOCAL_RANK"),
    (("PMIX_NAMESPACE",), "MPI_LOCALRANKID"),
)


@dataclass(frozen=True, slots=True)
class RankGroup:
    """The processes of one rank. `main` is the one that trains; others are its workers."""

    rank: int
    main: int
    pids: tuple[int, ...]


def rank_groups(members: Mapping[int, Process], declared: Mapping[int, int]) -> list[RankGroup]:
    """Assign every process to the rank that it, or its nearest ancestor with a rank, has.

    Args:
        members: The job's processes by pid.
        declared: Ranks by pid as the recorder wrote them; they count more than the environment.

    A rank's main process is the declared one, else the topmost, the oldest of several. Where some
    process has both RANK and LOCAL_RANK, RANK alone means nothing: clusters set it for whole nodes.
    """
    said = {
        pid: [number_in(member.environment, name) for name in ("RANK", "LOCAL_RANK")]
        for pid, member in members.items()
    }
    strict = any(None not in both for both in said.values())
    own = {
        pid: declared.get(pid, rank if local_rank is not None or not strict else None)
        for pid, (rank, local_rank) in said.items()
    }
    rank_of = {pid: _inherited(pid, members, own) for pid in members}
    groups: dict[int, list[Process]] = {}
    for pid, rank in rank_of.items():
        if rank is not None:
            groups.setdefault(rank, []).append(members[pid])
    result = []
    for rank, group in sorted(groups.items()):
        sure = [member for member in group if declared.get(member.pid) == rank]
        tops = [member for member in group if rank_of.get(member.parent) != rank]
        main = min(sure or tops or group, key=lambda member: (member.started_ticks, member.pid))
        result.append(RankGroup(rank, main.pid, tuple(sorted(member.pid for member in group))))
    return result


def _inherited(
    pid: int, members: Mapping[int, Process], own: Mapping[int, int | None]
) -> int | None:
    visited = set()
    while pid in members and pid not in visited:
        if (rank := own[pid]) is not None:
            return rank
        visited.add(pid)
        pid = members[pid].parent
    return None


class JobTree:
    """The job: the descendants of one process, and what carries this run's directory in its
    environment and was started after it (a worker that detached itself, or that another daemon
    started) or by another task of the same launch, which may be older.

    Once found, a process stays in the job although its parent ends. Only processes that are new
    since the previous scan are looked at, so a scan costs one directory listing.
    """

    def __init__(self, root_pid: int, run_dir: Path, host: str, proc: Path = Path("/proc")) -> None:
        self.processes: dict[int, Process] = {}
        self._root_pid, self._proc = root_pid, proc
        self._run_dir = str(run_dir.resolve())  # as in the environment
        self._settled_pids: set[int] = {os.getpid()}
        self._began_ticks = 0
        self._task = _Task()
        with contextlib.suppress(OSError, ValueError, IndexError):
            self._began_ticks = read_stat(proc / str(root_pid)).started_ticks
            self._task = _task(parse_environment((proc / str(root_pid) / "environ").read_bytes()))
        self._rank_files = _RankFiles(run_dir / RANKS, host)

    def scan(self, now_ns: int) -> list[RankGroup]:
        """Look for new and ended processes; the ranks as they are now, in order."""
        pids = set(numbers(self._proc))  # one folder per process and no other with a number
        for pid in self.processes.keys() - pids:
            del self.processes[pid]
        self._settled_pids &= pids
        newcomers: dict[int, Process] = {}
        for pid in pids - self._settled_pids:
            with contextlib.suppress(OSError, ValueError):
                newcomers[pid] = Process(pid, self._proc, now_ns)
        self._admit(newcomers)
        for process in self.processes.values():
            process.read_environment(now_ns)
        return rank_groups(self.processes, self._rank_files.ranks_by_pid())

    def _admit(self, newcomers: dict[int, Process]) -> None:
        for pid, process in newcomers.items():
            ancestor: Process | None = process
            visited: set[int] = set()
            while ancestor is not None and ancestor.pid not in visited:
                visited.add(ancestor.pid)
                if self._is_ours(ancestor):
                    self.processes[pid] = process
                    self._settled_pids.add(pid)
                    break
                ancestor = newcomers.get(ancestor.parent)
            else:
                # `run` of another task becomes its rank when it has read its options.
                if not process.is_young() and not self._is_beside(process):
                    self._settled_pids.add(pid)

    def _is_ours(self, process: Process) -> bool:
        return (
            self._root_pid in (process.pid, process.parent)
            or process.parent in self.processes
            or (
                process.environment.get(RUN_DIR_VARIABLE) == self._run_dir
                and (  # else of an earlier run
                    process.started_ticks >= self._began_ticks or self._is_beside(process)
                )
            )
        )

    def _is_beside(self, process: Process) -> bool:
        """Return whether another task of the same launch started it."""
        task = _task(process.environment)
        same = bool(self._task.launch) and task.launch == self._task.launch
        return same and task.number != self._task.number


@dataclass(frozen=True, slots=True)
class _Task:
    """A task of `srun` or `mpirun`. `launch` is the same for all of one launch, empty outside."""

    launch: tuple[str, ...] = ()
    number: str = ""


def _task(environment: Mapping[str, str]) -> _Task:
    for names, number in _TASKS:
        launch = tuple(environment.get(name, "") for name in names)
        if all(launch) and number in environment:
            return _Task(launch, environment[number])
    return _Task()


class _RankFiles:
    """`<run>/ranks/<rank>.json`, where the recorder says which process each rank is."""

    def __init__(self, folder: Path, host: str) -> None:
        self._folder = folder
        self._hosts = (host, os.uname().nodename)  # the recorder writes the second
        self._pids: dict[Path, tuple[float, int | None]] = {}

    def ranks_by_pid(self) -> dict[int, int]:
        """The ranks of this host. Files of other hosts are read once, ours when they change."""
        with contextlib.suppress(OSError):
            for path in self._folder.glob("*.json"):
                _, pid = self._pids.get(path, (0.0, 0))
                if path.stem.isdigit() and pid is not None:
                    self._read(path)
        return {pid: int(path.stem) for path, (_, pid) in self._pids.items() if pid is not None}

    def _read(self, path: Path) -> None:
        mtime, facts = path.stat().st_mtime, None
        if self._pids.get(path, (None, None))[0] != mtime:
            facts = rank_facts(path)
        if facts is not None:  # else the next scan looks again: it may be half written
            self._pids[path] = (mtime, facts["pid"] if facts["host"] in self._hosts else None)
