"""Samples the host: CPUs, memory, pressure, shared memory. Formats: proc(5); psi.rst."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from grpo_doctor_probes.procs.cgroups import control_groups, memory_available_bytes
from grpo_doctor_probes.procs.procfs import read, read_record
from grpo_doctor_probes.samplers.tracks import Pace, Reading, Track

Values = dict[Track, float | None]

# The kernel renews pressure averages every 2 s; the others here change slowly.
SLOW_PERIOD_NS = 1_000_000_000

CPU = Track("host.cpu", "%")
MEMORY_AVAILABLE = Track("host.memory_available", "bytes")
SWAP_USED = Track("host.swap_used", "bytes")
SHM_USED = Track("host.shm_used", "bytes")
SHM_SIZE = Track("host.shm_size", "bytes")
MAJOR_FAULTS = Track("host.major_faults", "1/s")
_PRESSURES = ("cpu", "memory", "io")


@dataclass(slots=True)
class _Part:
    """One part of the host that is read, and given up, by itself."""

    label: str
    read: Callable[[int], Values]
    pace: Pace
    tracks: set[Track] = field(default_factory=set)


class HostSampler:
    """Reads /proc, /sys and /dev/shm; what this host lacks is noted once and left out."""

    name = "host"

    def __init__(
        self,
        job_root_pid: int,
        proc: Path = Path("/proc"),
        sys: Path = Path("/sys"),
        shm: Path = Path("/dev/shm"),  # noqa: S108 - not a temporary file: its size is measured
    ) -> None:
        self._job_root_pid, self._proc, self._sys, self._shm = job_root_pid, proc, sys, shm
        self._cgroup_bytes: int | None = None
        self._cpu_time: tuple[int, int] | None = None
        self._faults: tuple[int, int] | None = None  # when, and how many since boot
        self._parts = [
            _Part(label, read, Pace(period_ns))
            for label, read, period_ns in (
                # First, because the smaller of host and cgroup is what `memory` writes.
                ("the memory limit of the job's cgroup", self._cgroup, SLOW_PERIOD_NS),
                ("memory", self._memory, 0),
                ("CPU usage", self._cpu, 0),
                ("pressure (PSI)", self._pressure, SLOW_PERIOD_NS),
                ("shared memory", self._shared_memory, SLOW_PERIOD_NS),
                ("major page faults", self._major_faults, SLOW_PERIOD_NS),
            )
        ]

    def read(self, now_ns: int) -> Reading:
        """Sample what is due; a part that cannot be read any more is noted and dropped."""
        reading = Reading()
        for part in tuple(self._parts):
            if not part.pace.due(now_ns):
                continue
            begun_ns = time.thread_time_ns()
            try:
                values = part.read(now_ns)
            except (OSError, ValueError, LookupError) as error:
                values = dict.fromkeys(part.tracks)
                self._parts.remove(part)
                reading.notes.append(f"{part.label} is not sampled: {error}")
            part.tracks.update(values)
            reading.values.update(values)
            part.pace.done(now_ns, time.thread_time_ns() - begun_ns)
        return reading

    def close(self) -> None:
        """Nothing is held open."""

    @cached_property
    def _groups(self) -> Mapping[str, Sequence[Path]]:
        return control_groups(self._job_root_pid, self._proc, self._sys / "fs/cgroup")

    def _cgroup(self, _now_ns: int) -> Values:
        self._cgroup_bytes = memory_available_bytes(self._groups)
        return {}

    def _memory(self, _now_ns: int) -> Values:
        available, swap_total, swap_free = meminfo_bytes(
            read_record(self._proc / "meminfo"), b"MemAvailable", b"SwapTotal", b"SwapFree"
        )
        values: Values = {}
        if available is not None:
            limited = self._cgroup_bytes
            values[MEMORY_AVAILABLE] = available if limited is None else min(available, limited)
        if swap_total is not None and swap_free is not None:
            values[SWAP_USED] = swap_total - swap_free
        return values

    def _cpu(self, _now_ns: int) -> Values:
        before, current = self._cpu_time, cpu_time(read_record(self._proc / "stat"))
        if before is None or current[1] <= before[1]:
            self._cpu_time = before or current
            return {}
        self._cpu_time = current
        share = (current[0] - before[0]) / (current[1] - before[1])
        return {CPU: 100.0 * min(1.0, max(0.0, share))}

    def _pressure(self, _now_ns: int) -> Values:
        folder = self._proc / "pressure"
        return {
            Track(f"host.psi_{part}", "%"): pressure_pct(read_record(folder / part))
            for part in _PRESSURES
        }

    def _shared_memory(self, _now_ns: int) -> Values:
        size = os.statvfs(self._shm)
        used = (size.f_blocks - size.f_bfree) * size.f_frsize
        return {SHM_USED: used, SHM_SIZE: size.f_blocks * size.f_frsize}

    def _major_faults(self, now_ns: int) -> Values:
        total, before = major_faults(read(self._proc / "vmstat")), self._faults
        if total is None:
            return {}
        self._faults = now_ns, total
        if before is None or now_ns <= before[0] or total < before[1]:
            return {}
        return {MAJOR_FAULTS: (total - before[1]) * 1e9 / (now_ns - before[0])}


def cpu_time(stat: bytes) -> tuple[int, int]:
    """Busy time and all time of all cores since boot, in clock ticks, from /proc/stat.

    Guest time is part of user time; waiting for a disk is idle time.
    """
    numbers = [int(word) for word in stat[: stat.index(b"\n")].split()[1:9]]
    total = sum(numbers)
    return total - numbers[3] - numbers[4], total


def meminfo_bytes(meminfo: bytes, *names: bytes) -> list[int | None]:
    """Return the named fields of /proc/meminfo; None for those that this kernel lacks."""
    sizes: dict[bytes, int] = {}
    for line in meminfo.splitlines():
        name, _, value = line.partition(b":")
        if name in names:
            sizes[name] = int(value.split()[0]) * 1024
    return [sizes.get(name) for name in names]


def major_faults(vmstat: bytes) -> int | None:
    """Pages that had to come from a disk since boot, from /proc/vmstat."""
    _, separator, count = vmstat.partition(b"\npgmajfault ")
    return int(count[: count.index(b"\n")]) if separator else None


def pressure_pct(pressure: bytes) -> float:
    """Return the share of the last 10 s in which some thread waited, of a /proc/pressure file."""
    return float(pressure.partition(b"avg10=")[2].split(None, 1)[0])
