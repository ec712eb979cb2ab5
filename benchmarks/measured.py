"""What a command takes: wall and processor seconds, and the most memory of all its processes."""

from __future__ import annotations

import os
import time
from pathlib import Path

_POLL_S = 0.02


def measured(command: list[str]) -> dict[str, float]:
    """Wall and processor seconds and peak MiB of a command with its children; it must succeed."""
    began = time.monotonic()
    log = os.open(os.devnull, os.O_WRONLY)
    actions = [(os.POSIX_SPAWN_DUP2, log, 1)]
    pid = os.posix_spawn(command[0], command, dict(os.environ), file_actions=actions)
    peak = 0.0
    while not (exit_state := os.wait4(pid, os.WNOHANG))[0]:
        # Not its `ru_maxrss`, which begins with what this process has.
        peak = max(peak, _resident_mib(pid), _highest_mib(pid))
        time.sleep(_POLL_S)
    _, status, usage = exit_state
    os.close(log)
    if status:
        raise SystemExit(f"{command} failed")
    return {
        "seconds": time.monotonic() - began,
        "cpu_seconds": usage.ru_utime + usage.ru_stime,
        "peak_mib": peak,
    }


def _resident_mib(pid: int) -> float:
    """What a process and its children have in memory now: HTA spreads its work over some."""
    return resident_bytes(pid) / 2**20 + sum(map(_resident_mib, children(pid)))


def children(pid: int) -> list[int]:
    """The processes that a process started, none if it has ended."""
    try:
        tasks = list(Path(f"/proc/{pid}/task").glob("*/children"))
        return [int(child) for task in tasks for child in task.read_text().split()]
    except OSError:
        return []


def resident_bytes(pid: int) -> int:
    """What of a process is in memory; 0 if it has ended."""
    try:
        pages = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]
    except (OSError, IndexError):
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def _highest_mib(pid: int) -> float:
    """The most that one process had in memory since its program began."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    lines = [line.split() for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(lines[0][1]) / 1024 if lines else 0.0
