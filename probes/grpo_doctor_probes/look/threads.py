"""One thread, read from /proc/PID/task/TID. Formats: proc_pid_stat(5), proc_pid_syscall(5).

All five files of a thread take 40 us together, so 64 ranks of 20 threads are 50 ms of reading.
"""

from __future__ import annotations

from grpo_doctor_probes.evidence import Thread
from grpo_doctor_probes.look.scheduler import SchedulerClock, parse_sched
from grpo_doctor_probes.printable import printable
from grpo_doctor_probes.procfs import read_record
from grpo_doctor_probes.procstat import read_stat


def read_thread(folder: str, tid: int, clock: SchedulerClock) -> Thread | None:
    """The thread `tid` of `folder` (/proc/PID/task); None when it has ended."""
    base = f"{folder}/{tid}/"
    try:
        stat = read_stat(f"{folder}/{tid}")
    except (OSError, ValueError):
        return None
    scheduling = parse_sched(_read_or_nothing(base + "sched"))
    number, arguments = parse_syscall(_read_or_nothing(base + "syscall"))
    return Thread(
        tid=tid,
        name=printable(stat.name, 32),
        state=stat.state,
        wchan=parse_wchan(_read_or_nothing(base + "wchan")),
        syscall=number,
        arguments=arguments,
        cpu_ticks=stat.cpu_ticks,
        voluntary=scheduling.voluntary,
        involuntary=scheduling.involuntary,
        run_delay_ns=parse_run_delay(_read_or_nothing(base + "schedstat")),
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


def parse_wchan(text: bytes) -> str:
    """The kernel function a thread sleeps in; empty for a running one, or where it is hidden."""
    return "" if text == b"0" else printable(text, 64)


def parse_run_delay(schedstat: bytes) -> int:
    """For how long the thread was ready to run and had no core, in ns over its life."""
    words = schedstat.split()
    return int(words[1]) if len(words) >= 2 else 0


def _read_or_nothing(path: str) -> bytes:
    try:
        return read_record(path)
    except OSError:  # ended meanwhile, or a file that this kernel or our rights do not give
        return b""
