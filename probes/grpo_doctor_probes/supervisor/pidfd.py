"""A process held by a file descriptor: its end is an event, and its number can't be reused.

How a child of somebody else ended is readable only while it is a zombie. Launchers collect theirs
within milliseconds; since Linux 6.15 the descriptor itself still tells afterwards.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import time
from pathlib import Path

from grpo_doctor_probes.procstat import read_stat

# linux/pidfd.h: PIDFD_GET_INFO is _IOWR(0xFF, 11, struct pidfd_info), whose first version is the
# 64 bytes of mask, cgroupid, eleven ids and exit_code.
_INFO = struct.Struct("=QQ11Ii")
_GET_INFO = 3 << 30 | _INFO.size << 16 | 0xFF << 8 | 11
_EXIT = 1 << 3
_ATTEMPTS, _PAUSE_S = 10, 0.002


def pidfd_open(pid: int) -> int | None:
    """A descriptor of the process; None where the kernel (before 5.3) or a sandbox has none.

    Raises:
        ProcessLookupError: there is no such process.
    """
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        raise
    except (OSError, AttributeError):
        return None


def wait_status(pid: int, descriptor: int | None, proc: Path = Path("/proc")) -> int | None:
    """The wait status of a process that has just ended; None where it is not known any more."""
    for _ in range(_ATTEMPTS):
        status = _of_zombie(pid, proc)
        if status is None and descriptor is not None:
            status = _after_reaping(descriptor)
        if status is not None or descriptor is None:
            return status
        time.sleep(_PAUSE_S)  # it is being collected: no zombie any more, and not yet gone
    return None


def _of_zombie(pid: int, proc: Path) -> int | None:
    with contextlib.suppress(OSError, ValueError, IndexError):
        stat = read_stat(proc / str(pid))
        if stat.state == "Z":
            return stat.wait_status
    return None


def _after_reaping(descriptor: int) -> int | None:
    answer = bytearray(_INFO.pack(_EXIT, *[0] * 13))
    with contextlib.suppress(OSError):
        fcntl.ioctl(descriptor, _GET_INFO, answer)
        mask, *_, status = _INFO.unpack(answer)
        if mask & _EXIT:
            return int(status)
    return None
