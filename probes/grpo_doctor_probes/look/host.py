"""The machine: load, memory, pressure, disks that the job uses, and what the kernel said."""

from __future__ import annotations

import contextlib
import os
import platform
from pathlib import Path
from typing import TYPE_CHECKING

from grpo_doctor_probes.evidence import HostFacts
from grpo_doctor_probes.look.disks import disks
from grpo_doctor_probes.look.kernel import messages
from grpo_doctor_probes.printable import printable
from grpo_doctor_probes.procfs import read
from grpo_doctor_probes.samplers.hostfiles import meminfo_bytes

if TYPE_CHECKING:
    from grpo_doctor_probes.evidence import Job

PROC = Path("/proc")


def host(job: Job, proc: Path = PROC) -> HostFacts:
    """Facts of this host; of disks only those that the job's processes use."""
    available, swap_total, swap_free = meminfo_bytes(
        _read_or_nothing(proc / "meminfo"), b"MemAvailable", b"SwapTotal", b"SwapFree"
    )
    kernel, kernel_problem = messages()
    return HostFacts(
        name=printable(platform.node(), 100),
        cores=os.cpu_count() or 1,
        load=_load(_read_or_nothing(proc / "loadavg")),
        memory_available_bytes=available or 0,
        swap_used_bytes=max(0, (swap_total or 0) - (swap_free or 0)),
        disks=disks(job, proc),
        kernel=kernel,
        kernel_problem=kernel_problem,
        pressure=_pressure(proc),
    )


def parse_pressure(text: bytes) -> dict[str, float]:
    """`{"some": percent of the last 10 s, "full": ...}` of a /proc/pressure file."""
    found = {}
    for line in text.decode("ascii", "replace").splitlines():
        kind, *pairs = line.split()
        for pair in pairs:
            name, _, value = pair.partition("=")
            if name == "avg10":
                with contextlib.suppress(ValueError):
                    found[kind] = float(value)
    return found


def _pressure(proc: Path) -> dict[str, float] | None:
    """None where the kernel does not measure it."""
    found = {}
    for resource in ("cpu", "io", "memory"):
        text = _read_or_nothing(proc / "pressure" / resource)
        found.update({f"{resource}.{kind}": pct for kind, pct in parse_pressure(text).items()})
    return found or None


def _load(loadavg: bytes) -> float:
    try:
        return float(loadavg.split()[0])
    except (IndexError, ValueError):
        return 0.0


def _read_or_nothing(path: Path) -> bytes:
    try:
        return read(path)
    except OSError:
        return b""
