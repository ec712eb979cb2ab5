"""What a sleep in the kernel is for, by the function that /proc/PID/wchan names. Pure."""

from __future__ import annotations

from typing import Literal

from grpo_doctor.hang.model.scene import Actor

Sleep = Literal["memory", "vfork", "gpu", ""]

_BEGINNINGS: dict[Sleep, tuple[str, ...]] = {
    "memory": (
        *("mem_cgroup", "try_charge", "reclaim_throttle", "throttle_direct", "shrink_"),
        *("do_swap_page", "__alloc_pages", "balance_pgdat"),
    ),
    "vfork": ("kernel_clone", "do_fork", "_do_fork", "wait_for_vfork"),
    "gpu": ("nv_", "_nv", "nvidia", "uvm_", "os_acquire_", "rm_"),
}


def sleep_of(actor: Actor) -> Sleep:
    """What the thread that decides sleeps for, "" where its function is none of these."""
    doer = actor.doer
    if doer is None or doer.state not in ("D", "S") or not doer.wchan:
        return ""
    found = (sleep for sleep, names in _BEGINNINGS.items() if doer.wchan.startswith(names))
    return next(found, "")
