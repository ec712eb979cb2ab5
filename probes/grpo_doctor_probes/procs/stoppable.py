"""Whether a thread may be stopped by a tracer at all.

A thread in uninterruptible sleep stops when its disk or driver lets it, and its tracer waits
as long. One inside a call of a driver (an `ioctl` on /dev/nvidia0) would be taken out of it half-
way: what the driver makes of that is its own affair, and the device may be lost to the job. Neither
is stopped, ever; reading their memory and /proc stops none.
"""

from __future__ import annotations

import os
import platform

from grpo_doctor_probes.procs.procfs import numbers, read_record
from grpo_doctor_probes.procs.procstat import state_of

_IOCTL = {"x86_64": 16, "aarch64": 29}.get(platform.machine(), 29)
# Accelerators and the network cards that talk to them; as the links of descriptors show them.
DRIVERS = ("/dev/nvidia", "/dev/gdrdrv", "/dev/kfd", "/dev/dri/", "/dev/infiniband/")
_MAX_THREADS = 4096


def why_not_process(pid: int, proc: str = "/proc") -> str:
    """Return why process `pid` may not be stopped as a whole; "" where it may be, or has gone."""
    try:
        tids = numbers(f"{proc}/{pid}/task")[:_MAX_THREADS]
    except OSError:
        return ""
    for tid in tids:
        reason = why_not_thread(pid, tid, proc)
        if reason:
            return f"its thread {tid} {reason}"
    return ""


def why_not_thread(pid: int, tid: int, proc: str = "/proc") -> str:
    """Return why thread `tid` of process `pid` may not be stopped; "" where it may be, or has gone.

    Where its system call may not be read it may not be traced either, so that is no reason here.
    """
    folder = f"{proc}/{pid}/task/{tid}"
    if state_of(folder) == "D":
        return "is in uninterruptible sleep"
    device = _driver_called(folder)
    return f"is inside a call of a driver ({device})" if device else ""


def _driver_called(folder: str) -> str:
    """Return the device that a thread has an ioctl on, "" for none."""
    try:
        words = read_record(f"{folder}/syscall").split()
        if len(words) < 2 or int(words[0]) != _IOCTL:
            return ""
        device = os.readlink(f"{folder}/fd/{int(words[1], 16)}")  # noqa: PTH115 - no path always
    except (OSError, ValueError):  # it runs, it has gone, or the descriptor was closed
        return ""
    return device if device.startswith(DRIVERS) else ""
