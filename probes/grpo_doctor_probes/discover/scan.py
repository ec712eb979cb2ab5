"""One pass over /proc: what every process of the host says of itself, cheaply; and their tree.

Three small reads for most processes, under 0.1 ms each; memory maps, descriptors and threads are
read later, of candidates alone. Formats: proc_pid_stat(5), environ(5).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from grpo_doctor_probes.procs.bounded import ask_each
from grpo_doctor_probes.procs.procfs import numbers, read, variables
from grpo_doctor_probes.procs.procstat import DEAD, EXITING, FORKED, KERNEL_THREAD, Stat, read_stat
from grpo_doctor_probes.record.rundir import RUN_DIR_VARIABLE

_NUMBER = re.compile(r"[0-9]{1,6}")
_LARGEST_NUMBER = 1 << 16  # a larger rank or world is a mistake or an attack
_INTERPRETERS = ("python", "pypy")
# With setproctitle a process has its title where its command line was.
_TITLES = ("ray::", "VLLM::", "sglang::")
# A reader of a command line waits for the process's memory lock, for ever where its holder hangs.
_STUCK_AFTER_S = 0.5
_LOCKED = "its memory is locked by a thread that hangs in the kernel"
_LIMIT_BYTES = 4 << 20
# libtorch_cpu.so alone maps over 300 MB; Python with numpy starts at 30 MB.
_TORCH_VIRTUAL_BYTES = 256 << 20
WANTED = frozenset(
    {
        "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK",
        "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT",
        "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS",
        "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_JOB_ID", "SLURM_STEP_ID",
        "RAY_JOB_ID", "RAY_LOCAL_WORLD_SIZE", "LOCAL_SIZE", RUN_DIR_VARIABLE,
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Process:
    """A process as the scan saw it. All texts are as they came: not safe to print.

    Attributes:
        forked: whether it was forked and has not called exec since.
        image: the same for processes that were forked from each other without exec; None unknown.
        python: whether its program is a Python interpreter.
        environment: of `WANTED`, as it was at exec.
        readable: False where its environment was refused.
        problem: why it could not be read although it is there.
    """

    pid: int
    parent: int
    group: int
    session: int
    state: str
    name: str
    started_ticks: int
    virtual_bytes: int = 0
    kernel: bool = False
    exiting: bool = False
    forked: bool = False
    image: tuple[int, int] | None = None
    uid: int = 0
    python: bool = False
    executable: str = ""
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    readable: bool = True
    problem: str = ""

    @property
    def large(self) -> bool:
        """Whether it may have torch in it."""
        return self.virtual_bytes >= _TORCH_VIRTUAL_BYTES

    @property
    def dead(self) -> bool:
        """Whether it has ended: a zombie, until its parent asks how, or on the way there."""
        return self.exiting or self.state in DEAD


def scan(proc: Path) -> dict[int, Process]:
    """Return all processes that `proc` shows, kernel threads included."""
    scanned, blocking = ask_each(numbers(proc), lambda pid: read_process(proc, pid), _STUCK_AFTER_S)
    for pid in blocking:
        if (process := read_process(proc, pid, details=False)) is not None:
            scanned[pid] = replace(process, readable=False, problem=_LOCKED)
    return {pid: process for pid, process in sorted(scanned.items()) if process is not None}


def read_process(proc: Path, pid: int, *, details: bool = True) -> Process | None:
    """Return one process; None when it is not there (any more)."""
    folder = f"{proc}/{pid}"
    try:
        process = as_seen(pid, read_stat(folder))
        return _with_details(process, folder) if details and not process.kernel else process
    except (OSError, ValueError, IndexError):
        return None


def glance(proc: Path) -> dict[int, Process]:
    """Return all processes as everybody may see them: one read each, which nothing can hold up."""
    processes = {pid: read_process(proc, pid, details=False) for pid in numbers(proc)}
    return {pid: process for pid, process in processes.items() if process is not None}


def as_seen(pid: int, stat: Stat) -> Process:
    """Return what everybody may see of it. Raises ValueError, IndexError."""
    return Process(
        pid=pid,
        parent=stat.parent,
        group=stat.group,
        session=stat.session,
        state=stat.state,
        name=stat.name.decode("utf-8", "replace"),
        started_ticks=stat.started_ticks,
        virtual_bytes=stat.virtual_bytes,
        kernel=bool(stat.flags & KERNEL_THREAD),
        exiting=bool(stat.flags & EXITING),
        forked=bool(stat.flags & FORKED),
        image=stat.image,
    )


def _with_details(process: Process, folder: str) -> Process:
    uid = os.stat(folder).st_uid  # noqa: PTH116 - a Path for each process costs more than the call
    if process.dead:
        return replace(process, uid=uid)
    command = read(f"{folder}/cmdline", _LIMIT_BYTES).rstrip(b"\0")
    arguments = tuple(os.fsdecode(command).split("\0"))
    executable = _executable(folder)
    program = executable or arguments[0]
    python = program.rpartition("/")[2].startswith(_INTERPRETERS)
    python = python or (not executable and program.startswith(_TITLES))
    environment: dict[str, str] = {}
    readable = executable is not None
    if python:
        try:
            environment = parse_environment(read(f"{folder}/environ", _LIMIT_BYTES))
        except PermissionError:
            readable = False
    return replace(
        process,
        uid=uid,
        python=python,
        executable=executable or "",
        arguments=arguments,
        environment=environment,
        readable=readable,
    )


def parse_environment(environ: bytes) -> dict[str, str]:
    """Return the variables of `WANTED` in NUL-separated `NAME=value` entries."""
    return {name: value for name, value in variables(environ).items() if name in WANTED}


def number_in(environment: Mapping[str, str], name: str) -> int | None:
    """Return a variable that is a sensible number of a rank or of ranks; None else."""
    text = environment.get(name, "")
    return int(text) if _NUMBER.fullmatch(text) and int(text) < _LARGEST_NUMBER else None


def _executable(folder: str) -> str | None:
    """Return the path of its program; None where that is refused."""
    try:
        return os.readlink(f"{folder}/exe")  # noqa: PTH115 - see above
    except PermissionError:
        return None
    except OSError:
        return ""


class Tree:
    """The process tree. Parents may be missing: hidden, or ended between two reads."""

    def __init__(self, processes: Mapping[int, Process]) -> None:
        self.processes = processes
        self._children: dict[int, list[int]] = {}
        for process in processes.values():
            self._children.setdefault(process.parent, []).append(process.pid)

    def children(self, pid: int) -> list[Process]:
        """Return the direct children, in order of their start."""
        return [
            self.processes[child] for child in sorted(self._children.get(pid, ()), key=self.started)
        ]

    def started(self, pid: int) -> tuple[int, int]:
        """Return what orders processes by their start."""
        return self.processes[pid].started_ticks, pid

    def ancestors(self, pid: int) -> Iterator[int]:
        """From the parent upwards, as far as processes are known."""
        visited = {pid}
        while (process := self.processes.get(pid)) is not None:
            pid = process.parent
            if pid in visited or pid not in self.processes:
                return
            visited.add(pid)
            yield pid

    def descendants(self, pid: int) -> set[int]:
        """Return all below, without `pid`."""
        below: set[int] = set()
        waiting = list(self._children.get(pid, ()))
        while waiting:
            if (child := waiting.pop()) not in below and child != pid:
                below.add(child)
                waiting.extend(self._children.get(child, ()))
        return below

    def nearest(self, pid: int, among: Iterable[int] | Mapping[int, object]) -> int | None:
        """Return the nearest ancestor that is one of `among`."""
        pids = among if isinstance(among, (set, frozenset, Mapping)) else set(among)
        return next((above for above in self.ancestors(pid) if above in pids), None)
