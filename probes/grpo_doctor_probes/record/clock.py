"""This process's clocks: everything is CLOCK_MONOTONIC ns of its host.

Two processes with the same `identity` read the same clock. Across hosts, `read` pairs the
monotonic clock with the wall clock, which puts both on one axis as well as NTP keeps them.
"""

from __future__ import annotations

import os
import time

_READINGS = 5
_STATE, _STARTED = 0, 19  # fields behind the name in /proc/PID/stat, proc_pid_stat(5)


def read() -> dict[str, int]:
    """Monotonic and wall clock at one moment, ns; `error_ns` is half the bracket around it."""
    best = (1 << 62, 0, 0)
    for _ in range(_READINGS):
        before = time.monotonic_ns()
        wall = time.time_ns()
        after = time.monotonic_ns()
        best = min(best, (after - before, (before + after) // 2, wall))
    bracket, monotonic, wall = best
    return {"monotonic_ns": monotonic, "unix_ns": wall, "error_ns": bracket // 2}


def identity() -> str:
    """Boot id and time namespace: equal where CLOCK_MONOTONIC is the same clock."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:  # noqa: PTH123
            boot = file.read().strip()
        namespace = os.readlink("/proc/self/ns/time")  # noqa: PTH115
    except OSError:
        return ""
    return f"{boot}/{namespace}"


def process_start_ns(pid: int | None = None) -> int | None:
    """When a process (default: this one) was started, on CLOCK_MONOTONIC, to a tick of 10 ms.

    None if it has ended, is a zombie, or /proc does not say.

    /proc counts from boot including suspend, CLOCK_MONOTONIC without: the difference is taken out.
    """
    try:
        with open(f"/proc/{pid or 'self'}/stat", "rb") as file:  # noqa: PTH123
            fields = file.read().rpartition(b") ")[2].split()
        if fields[_STATE] == b"Z":
            return None
        since_boot_ns = int(fields[_STARTED]) * 1_000_000_000 // os.sysconf("SC_CLK_TCK")
        suspended_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - time.monotonic_ns()
    except (OSError, ValueError, IndexError, AttributeError):
        return None
    return since_boot_ns - suspended_ns
