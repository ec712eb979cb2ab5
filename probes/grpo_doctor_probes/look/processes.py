"""Counters and states of all processes of a job, with all their threads, at one moment."""

from __future__ import annotations

import re
import time
from pathlib import Path

from grpo_doctor_probes.discover.permission import ptrace_remedy
from grpo_doctor_probes.evidence import Job, Look, ProcessLook, Thread
from grpo_doctor_probes.look.threads import SchedulerClock, read_thread
from grpo_doctor_probes.procs.procfs import content, numbers, read, read_record
from grpo_doctor_probes.procs.procstat import read_stat

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
    if not refused and state not in "ZX" and _calls_are_hidden(base + "syscall"):
        refused = "system calls"
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


def _calls_are_hidden(path: str) -> bool:
    """Yama and missing capabilities take `syscall` away while `io` is still readable."""
    try:
        read_record(path)
    except PermissionError:
        return True
    except OSError:
        return False
    return False
