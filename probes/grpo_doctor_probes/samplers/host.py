"""Samples the host: CPUs, memory, pressure, disks, network, shared memory."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from grpo_doctor_probes.procs import hostfiles
from grpo_doctor_probes.procs.cgroups import control_groups, memory_available_bytes
from grpo_doctor_probes.procs.hostfiles import ProcFile, Rate
from grpo_doctor_probes.samplers.ticks import Pace
from grpo_doctor_probes.samplers.tracks import Reading, Track

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


@dataclass(frozen=True, slots=True)
class _Gauge:
    """One part of the host that is read, and given up, by itself."""

    label: str
    open: Callable[[], Callable[[int], Values]]
    period_ns: int = 0


@dataclass(slots=True)
class _Open:
    gauge: _Gauge
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
        self._files: list[ProcFile] = []
        self._parts: list[_Open] | None = None
        self._cgroup_bytes: int | None = None

    def read(self, now_ns: int) -> Reading:
        """Sample what is due; a part that cannot be read any more is noted and dropped."""
        reading = Reading()
        if self._parts is None:
            self._parts = self._open_all(reading)
        for part in tuple(self._parts):
            if not part.pace.due(now_ns):
                continue
            begun_ns = time.thread_time_ns()
            try:
                values = part.read(now_ns)
            except (OSError, ValueError, IndexError) as error:
                values = dict.fromkeys(part.tracks)
                self._parts.remove(part)
                reading.notes.append(f"{part.gauge.label} is not sampled: {error}")
            part.tracks.update(values)
            reading.values.update(values)
            part.pace.done(now_ns, time.thread_time_ns() - begun_ns)
        return reading

    def close(self) -> None:
        """Close the files."""
        for file in self._files:
            file.close()
        self._files.clear()

    def _open_all(self, reading: Reading) -> list[_Open]:
        parts = []
        for gauge in self._gauges():
            try:
                parts.append(_Open(gauge, gauge.open(), Pace(gauge.period_ns)))
            except OSError as error:
                reading.notes.append(f"{gauge.label} is not sampled: {error}")
        return parts

    def _gauges(self) -> list[_Gauge]:
        return [
            # First, because the smaller of host and cgroup is what `memory` writes.
            _Gauge("the memory limit of the job's cgroup", self._cgroup, SLOW_PERIOD_NS),
            _Gauge("memory", self._memory),
            _Gauge("CPU usage", self._cpu),
            _Gauge("disk traffic", self._disks),
            _Gauge("network traffic", self._net),
            _Gauge("load", self._load, SLOW_PERIOD_NS),
            _Gauge("pressure (PSI)", self._pressure, SLOW_PERIOD_NS),
            _Gauge("shared memory", self._shared_memory, SLOW_PERIOD_NS),
            _Gauge("major page faults", self._major_faults, SLOW_PERIOD_NS),
        ]

    def _file(self, *path: str) -> ProcFile:
        file = ProcFile(self._proc.joinpath(*path))
        self._files.append(file)
        return file

    def _cpu(self) -> Callable[[int], Values]:
        stat = self._file("stat")
        previous = hostfiles.cpu_time(stat.read_start())

        def read(_now_ns: int) -> Values:
            nonlocal previous
            current = hostfiles.cpu_time(stat.read_start())
            busy, total = current.busy - previous.busy, current.total - previous.total
            if total <= 0:
                return {}
            previous = current
            return {CPU: min(100.0, max(0.0, 100.0 * busy / total))}

        return read

    def _memory(self) -> Callable[[int], Values]:
        meminfo = self._file("meminfo")

        def read(_now_ns: int) -> Values:
            available, swap_total, swap_free = hostfiles.meminfo_bytes(
                meminfo.read_start(), b"MemAvailable", b"SwapTotal", b"SwapFree"
            )
            values: Values = {}
            if available is not None:
                limited = self._cgroup_bytes
                values[MEMORY_AVAILABLE] = available if limited is None else min(available, limited)
            if swap_total is not None and swap_free is not None:
                values[SWAP_USED] = swap_total - swap_free
            return values

        return read

    def _cgroup(self) -> Callable[[int], Values]:
        groups = control_groups(self._job_root_pid, self._proc, self._sys / "fs/cgroup")

        def read(_now_ns: int) -> Values:
            self._cgroup_bytes = None
            self._cgroup_bytes = memory_available_bytes(groups)
            return {}

        return read

    def _disks(self) -> Callable[[int], Values]:
        diskstats, disks = self._file("diskstats"), hostfiles.whole_disks(self._sys)
        return _transfer(
            lambda: hostfiles.disk_bytes(diskstats.read(), disks), DISK_READ, DISK_WRITE
        )

    def _net(self) -> Callable[[int], Values]:
        net_dev, links = self._file("net", "dev"), hostfiles.counted_links(self._sys)
        return _transfer(lambda: hostfiles.net_bytes(net_dev.read(), links), NET_RX, NET_TX)

    def _load(self) -> Callable[[int], Values]:
        loadavg = self._file("loadavg")
        return lambda _now_ns: {LOAD: float(loadavg.read_start().split(None, 1)[0])}

    def _pressure(self) -> Callable[[int], Values]:
        files = {
            Track(f"host.psi_{part}", "%"): self._file("pressure", part)
            for part in ("cpu", "memory", "io")
        }
        return lambda _now_ns: {
            track: hostfiles.pressure_pct(file.read_start())["some"]
            for track, file in files.items()
        }

    def _shared_memory(self) -> Callable[[int], Values]:
        def read(_now_ns: int) -> Values:
            size = os.statvfs(self._shm)
            used = (size.f_blocks - size.f_bfree) * size.f_frsize
            return {SHM_USED: used, SHM_SIZE: size.f_blocks * size.f_frsize}

        return read

    def _major_faults(self) -> Callable[[int], Values]:
        vmstat, rate = self._file("vmstat"), Rate()

        def read(now_ns: int) -> Values:
            total = hostfiles.major_faults(vmstat.read())
            faults_per_s = None if total is None else rate.per_s(now_ns, total)
            return {} if faults_per_s is None else {MAJOR_FAULTS: faults_per_s}

        return read


def _transfer(
    total: Callable[[], hostfiles.Transfer], received: Track, sent: Track
) -> Callable[[int], Values]:
    rates = (Rate(), Rate())

    def read(now_ns: int) -> Values:
        totals = zip((received, sent), rates, total(), strict=True)
        per_s = {track: rate.per_s(now_ns, value) for track, rate, value in totals}
        return {track: value for track, value in per_s.items() if value is not None}

    return read
