"""What files of /proc and /sys say of the host. Formats: proc(5) and the kernel's iostats.rst."""

from __future__ import annotations

from collections.abc import Container
from pathlib import Path
from typing import NamedTuple

_SECTOR_BYTES = 512
# Loop, RAM and compressed-RAM disks move no data to a device; dm and md repeat what their disks do.
_NO_DISKS = ("loop", "ram", "zram", "dm-", "md", "sr", "fd")
# Without physical interfaces (a container), what only repeats another one's traffic is left out.
_NO_LINKS = ("lo", "veth", "docker", "br-", "virbr", "ifb", "dummy", "cali", "flannel", "cni")


class Rate:
    """A growing counter as a rate per second."""

    def __init__(self) -> None:
        self._previous: tuple[int, float] | None = None

    def per_s(self, now_ns: int, total: float) -> float | None:
        """The rate since the previous call; None at the first, and where the counter fell."""
        previous, self._previous = self._previous, (now_ns, total)
        if previous is None or now_ns <= previous[0] or total < previous[1]:
            return None
        return (total - previous[1]) * 1e9 / (now_ns - previous[0])


class CpuTime(NamedTuple):
    """CPU time of all cores since boot, in clock ticks."""

    busy: int
    total: int


class Transfer(NamedTuple):
    """Bytes since boot."""

    received: int
    sent: int


def cpu_time(stat: bytes) -> CpuTime:
    """From /proc/stat. Guest time is part of user time; waiting for a disk is idle time."""
    numbers = [int(word) for word in stat[: stat.index(b"\n")].split()[1:9]]
    total = sum(numbers)
    return CpuTime(total - numbers[3] - numbers[4], total)


def meminfo_bytes(meminfo: bytes, *names: bytes) -> list[int | None]:
    """Return the named fields of /proc/meminfo; None for those that this kernel lacks."""
    sizes: dict[bytes, int] = {}
    for line in meminfo.splitlines():
        name, _, value = line.partition(b":")
        if name in names:
            sizes[name] = int(value.split()[0]) * 1024
    return [sizes.get(name) for name in names]


def disk_bytes(diskstats: bytes, disks: Container[bytes]) -> Transfer:
    """Return bytes read and written by whole disks, from /proc/diskstats."""
    read = written = 0
    for line in diskstats.splitlines():
        words = line.split()
        if words[2] in disks:
            read += int(words[5])
            written += int(words[9])
    return Transfer(read * _SECTOR_BYTES, written * _SECTOR_BYTES)


def net_bytes(net_dev: bytes, links: Container[bytes]) -> Transfer:
    """Bytes received and sent, from /proc/net/dev. RDMA (InfiniBand, RoCE) does not pass there."""
    received = sent = 0
    for line in net_dev.splitlines()[2:]:
        name, _, numbers = line.partition(b":")
        if name.strip() in links:
            words = numbers.split()
            received += int(words[0])
            sent += int(words[8])
    return Transfer(received, sent)


def major_faults(vmstat: bytes) -> int | None:
    """Pages that had to come from a disk since boot, from /proc/vmstat."""
    _, separator, count = vmstat.partition(b"\npgmajfault ")
    return int(count[: count.index(b"\n")]) if separator else None


def pressure_pct(pressure: bytes) -> dict[str, float]:
    """`{"some": percent of the last 10 s, "full": ...}` of a /proc/pressure file."""
    lines = (line.split() for line in pressure.decode("ascii", "replace").splitlines())
    return {
        kind: float(pair.removeprefix("avg10="))
        for kind, *pairs in lines
        for pair in pairs
        if pair.startswith("avg10=")
    }


def whole_disks(sys: Path) -> frozenset[bytes]:
    """Disks whose traffic counts, each once: no partitions, no layers on top of other disks."""
    try:
        names = [entry.name for entry in (sys / "block").iterdir()]
    except OSError:
        return frozenset()
    return frozenset(name.encode() for name in names if not name.startswith(_NO_DISKS))


def counted_links(sys: Path) -> frozenset[bytes]:
    """Network interfaces whose traffic counts: the physical ones, else all that look real."""
    try:
        links = list((sys / "class/net").iterdir())
    except OSError:
        return frozenset()
    physical = [link for link in links if (link / "device").exists()]
    real = [link for link in links if not link.name.startswith(_NO_LINKS)]
    return frozenset(link.name.encode() for link in physical or real)
