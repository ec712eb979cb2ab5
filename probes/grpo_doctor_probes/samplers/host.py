"""Samples the host: CPUs, memory, pressure, disks, network, shared memory."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from grpo_doctor_probes.procs import hostfiles
from grpo_doctor_probes.procs.cgroups import control_groups, memory_available_bytes
from grpo_doctor_probes.procs.hostfiles import Rate
from grpo_doctor_probes.procs.procfs import read, read_record
from grpo_doctor_probes.samplers.tracks import Pace, Reading, Track

Values = dict[Track, float | None]

# The kernel renews load and pressure averages every 5 and 2 s; the others here change slowly.
SLOW_PERIOD_NS = 1_000_000_000

CPU = Track("host.cpu", "%")
LOAD = Track("host.load1", "load")
MEMORY_AVAILABLE = Track("host.memory_available", "bytes")
SWAP_USED = Track("host.swap_used", "bytes")
DISK_READ = Track("host.disk_read", "bytes/s")
DISK_WRITE = Track("host.disk_write", "bytes/s")
NET_RX = Track("host.net_rx", "bytes/s")
NET_TX = Track("host.net_tx", "bytes/s")
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
        self._cpu_time: hostfiles.CpuTime | None = None
        self._rates: defaultdict[Track, Rate] = defaultdict(Rate)
        self._parts = [
            _Part(label, read, Pace(period_ns))
            for label, read, period_ns in (
                # First, because the smaller of host and cgroup is what `memory` writes.
                ("the memory limit of the job's cgroup", self._cgroup, SLOW_PERIOD_NS),
                ("memory", self._memory, 0),
                ("CPU usage", self._cpu, 0),
                ("disk traffic", self._disks, 0),
                ("network traffic", self._net, 0),
                ("load", self._load, SLOW_PERIOD_NS),
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

    @cached_property
    def _whole_disks(self) -> frozenset[bytes]:
        return hostfiles.whole_disks(self._sys)

    @cached_property
    def _links(self) -> frozenset[bytes]:
        return hostfiles.counted_links(self._sys)

    def _cgroup(self, _now_ns: int) -> Values:
        self._cgroup_bytes = memory_available_bytes(self._groups)
        return {}

    def _memory(self, _now_ns: int) -> Values:
        available, swap_total, swap_free = hostfiles.meminfo_bytes(
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
        before, current = self._cpu_time, hostfiles.cpu_time(read_record(self._proc / "stat"))
        if before is None or current.total <= before.total:
            self._cpu_time = before or current
            return {}
        self._cpu_time = current
        share = (current.busy - before.busy) / (current.total - before.total)
        return {CPU: 100.0 * min(1.0, max(0.0, share))}

    def _disks(self, now_ns: int) -> Values:
        moved = hostfiles.disk_bytes(read(self._proc / "diskstats"), self._whole_disks)
        return self._per_s(now_ns, {DISK_READ: moved.received, DISK_WRITE: moved.sent})

    def _net(self, now_ns: int) -> Values:
        moved = hostfiles.net_bytes(read(self._proc / "net" / "dev"), self._links)
        return self._per_s(now_ns, {NET_RX: moved.received, NET_TX: moved.sent})

    def _load(self, _now_ns: int) -> Values:
        return {LOAD: float(read_record(self._proc / "loadavg").split(None, 1)[0])}

    def _pressure(self, _now_ns: int) -> Values:
        folder = self._proc / "pressure"
        shares = {part: hostfiles.pressure_pct(read_record(folder / part)) for part in _PRESSURES}
        return {Track(f"host.psi_{part}", "%"): share["some"] for part, share in shares.items()}

    def _shared_memory(self, _now_ns: int) -> Values:
        size = os.statvfs(self._shm)
        used = (size.f_blocks - size.f_bfree) * size.f_frsize
        return {SHM_USED: used, SHM_SIZE: size.f_blocks * size.f_frsize}

    def _major_faults(self, now_ns: int) -> Values:
        total = hostfiles.major_faults(read(self._proc / "vmstat"))
        return {} if total is None else self._per_s(now_ns, {MAJOR_FAULTS: total})

    def _per_s(self, now_ns: int, totals: Mapping[Track, int]) -> Values:
        """Return growing counters as rates; those that have none yet are left out."""
        rates = {track: self._rates[track].per_s(now_ns, total) for track, total in totals.items()}
        return {track: rate for track, rate in rates.items() if rate is not None}
