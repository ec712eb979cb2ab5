"""Counters and states of all processes of a job, with all their threads, at one moment.

Formats: proc_pid_stat(5), proc_pid_syscall(5). All five files of a thread take 40 us together, so
64 ranks of 20 threads are 50 ms of reading.
"""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass
from pathlib import Path

from grpo_doctor_probes.discover.permission import ptrace_remedy
from grpo_doctor_probes.evidence import Job, Look, ProcessLook, Thread
from grpo_doctor_probes.procs.bounded import within
from grpo_doctor_probes.procs.printable import printable
from grpo_doctor_probes.procs.procfs import content, numbers, read, read_record
from grpo_doctor_probes.procs.procstat import read_stat

_EXEC_START = re.compile(rb"^se\.exec_start\s*:\s*(\d+)\.(\d+)", re.MULTILINE)
_SWITCHES = re.compile(rb"^nr_(voluntary|involuntary)_switches\s*:\s*(\d+)", re.MULTILINE)
_READINGS = 4
# On a full core our thread gets its turn within milliseconds, beside a real-time task perhaps not.
_ONE_CORE_S = 0.2
_BUDGET_S = 0.6


@dataclass(frozen=True, slots=True)
class Scheduling:
    """`exec_start_ns` is on the scheduler's clock; 0 where the kernel does not say."""

    exec_start_ns: int = 0
    voluntary: int = 0
    involuntary: int = 0


def parse_sched(sched: bytes) -> Scheduling:
    """From /proc/PID/task/TID/sched. Its first line holds a name that may look like a field."""
    _, _, fields = sched.partition(b"\n-----")
    start = _EXEC_START.search(fields)
    switches = {kind: int(count) for kind, count in _SWITCHES.findall(fields)}
    return Scheduling(
        int(start[1]) * 1_000_000 + int(start[2][:6].ljust(6, b"0")) if start else 0,
        switches.get(b"voluntary", 0),
        switches.get(b"involuntary", 0),
    )


class SchedulerClock:
    """Turns `se.exec_start` of a thread into CLOCK_MONOTONIC. One of these per look.

    The offset of a core is measured at its first use, by a thread of ours that runs on it.

    `se.exec_start` is on the scheduler's own clock. It is not CLOCK_MONOTONIC, and each core has
    its own: time that a hypervisor stole from a core, or interrupts took, does not pass on it
    (update_rq_clock_task in kernel/sched/core.c). After 3.5 h on a virtual machine, two cores were
    13.37 and 13.04 s behind. So a thread of ours runs on the core in question, and its own value
    has what that clock shows now.
    """

    def __init__(self, proc: Path) -> None:
        self._sched = f"{proc}/thread-self/sched"
        self._offsets_ns: dict[int, int] = {}
        self._failed: set[int] = set()
        self._budget_s = _BUDGET_S

    def monotonic_ns(self, exec_start_ns: int, core: int) -> int:
        """When a thread that last ran on `core` did so; 0 where unknown.

        Time that the core has lost since then is not known, so a long wait is reported slightly
        short.
        """
        if not exec_start_ns:
            return 0
        if core not in self._offsets_ns and core not in self._failed:
            self._measure(core)
        offset_ns = self._offsets_ns.get(core)
        if offset_ns is None:  # a core that we may not use: as far off as the nearest one
            offset_ns = min(self._offsets_ns.values(), default=None)
        return exec_start_ns + offset_ns if offset_ns is not None else 0

    def _measure(self, core: int) -> None:
        began_s = time.monotonic()
        try:
            left_s = min(self._budget_s, _ONE_CORE_S)
            if left_s > 0:
                self._offsets_ns[core] = within(left_s, lambda: _offset_on(core, self._sched))
                return
        except (OSError, ValueError):  # outside our cpuset, kept by a real-time task, or no file
            pass
        finally:
            self._budget_s -= time.monotonic() - began_s
        self._failed.add(core)


def _offset_on(core: int, sched: str) -> int:
    """CLOCK_MONOTONIC minus the scheduler's clock of `core`. Binds the calling thread to it.

    The kernel brings a running thread's value up to date at ticks and switches only, so of several
    readings the one with the smallest difference is nearest. Raises OSError or ValueError.
    """
    os.sched_setaffinity(0, {core})
    offsets = []
    for _ in range(_READINGS):
        time.sleep(0)  # gives up the core, which makes the kernel write the value down
        own = parse_sched(read_record(sched))
        if not own.exec_start_ns:
            raise ValueError("this kernel does not report se.exec_start")
        offsets.append(time.monotonic_ns() - own.exec_start_ns)
    return min(offsets)


def read_thread(folder: str, tid: int, clock: SchedulerClock) -> Thread | None:
    """Return the thread `tid` of `folder` (/proc/PID/task); None when it has ended."""
    base = f"{folder}/{tid}/"
    try:
        stat = read_stat(f"{folder}/{tid}")
    except (OSError, ValueError):
        return None
    scheduling = parse_sched(_read_or_nothing(base + "sched"))
    number, arguments = parse_syscall(_read_or_nothing(base + "syscall"))
    wchan, delays = _read_or_nothing(base + "wchan"), _read_or_nothing(base + "schedstat").split()
    return Thread(
        tid=tid,
        name=printable(stat.name, 32),
        state=stat.state,
        wchan="" if wchan == b"0" else printable(wchan, 64),  # "0": running, or hidden
        syscall=number,
        arguments=arguments,
        cpu_ticks=stat.cpu_ticks,
        voluntary=scheduling.voluntary,
        involuntary=scheduling.involuntary,
        run_delay_ns=int(delays[1]) if len(delays) >= 2 else 0,  # ready to run, and had no core
        last_ran_ns=clock.monotonic_ns(scheduling.exec_start_ns, stat.core),
    )


def parse_syscall(text: bytes) -> tuple[int, tuple[int, ...]]:
    """Number and six arguments of the call a thread is in; -1 for a running thread, or refused."""
    words = text.split()
    try:
        number = int(words[0])
        return (number, tuple(int(word, 16) for word in words[1:7])) if number >= 0 else (-1, ())
    except (IndexError, ValueError):  # "running"
        return -1, ()


def _read_or_nothing(path: str) -> bytes:
    try:
        return read_record(path)
    except OSError:  # ended meanwhile, or a file that this kernel or our rights do not give
        return b""


_SWAP = re.compile(rb"^VmSwap:\s*(\d+) kB", re.MULTILINE)
# Of a process with thousands of threads, the oldest tell enough: a look must stay quick.
_MOST_THREADS = 1024


def processes(job: Job, proc: Path = Path("/proc")) -> Look:
    """Look at every process of the job. One that has ended has state `X`, a zombie `Z`.

    Bytes are those of /proc/PID/io, so reads of a cache, a pipe or a terminal
    count, and `recv` on a socket does not.
    """
    at_ns = time.monotonic_ns()
    clock = SchedulerClock(proc)
    looks = (look_at(member.pid, member.started_ticks, clock, proc) for member in job.members)
    return Look(at_ns, tuple(looks))


def look_at(
    pid: int, started_ticks: int, clock: SchedulerClock, proc: Path = Path("/proc")
) -> ProcessLook:
    """Look at one process; a later one of the same number counts as gone. 0 ticks: any."""
    at_ns = time.monotonic_ns()
    base = f"{proc}/{pid}/"
    try:
        stat = read_stat(f"{proc}/{pid}")
    except (OSError, ValueError):
        return ProcessLook(pid, at_ns, "X")
    if started_ticks and stat.started_ticks != started_ticks:
        return ProcessLook(pid, at_ns, "X")
    state = stat.state
    threads = _threads(base + "task", pid, clock)
    # A main thread that has ended before others is `Z` too, with no code yet.
    ended = state == "Z" and len(threads) <= 1
    swap = _SWAP.search(content(base + "status"))
    io, refused = _io(base + "io")
    if not refused and state not in "ZX":
        try:  # Yama and missing capabilities take it away while `io` is still readable
            read_record(base + "syscall")
        except PermissionError:
            refused = "system calls"
        except OSError:
            pass
    return ProcessLook(
        pid=pid,
        at_ns=at_ns,
        state=state,
        cpu_ticks=stat.cpu_ticks,
        read_bytes=io.get(b"rchar", 0),
        written_bytes=io.get(b"wchar", 0),
        major_faults=stat.major_faults,
        rss_bytes=stat.rss_bytes,
        swap_bytes=int(swap[1]) * 1024 if swap else 0,
        exit_code=stat.wait_status if ended and not refused else None,
        threads=threads,
        problem=f"the {refused} of process {pid} are hidden: {ptrace_remedy()}" if refused else "",
    )


def _threads(folder: str, pid: int, clock: SchedulerClock) -> tuple[Thread, ...]:
    try:
        tids = numbers(folder)
    except OSError:
        return ()
    tids.sort(key=lambda tid: tid != pid)
    threads = (read_thread(folder, tid, clock) for tid in tids[:_MOST_THREADS])
    return tuple(thread for thread in threads if thread is not None)


def _io(path: str) -> tuple[dict[bytes, int], str]:
    """Return the counters of /proc/PID/io, and what is refused."""
    try:
        lines = read(path).splitlines()
    except PermissionError:
        return {}, "I/O counters and system calls"
    except OSError:
        return {}, ""
    return {name: int(value) for name, _, value in (line.partition(b": ") for line in lines)}, ""
