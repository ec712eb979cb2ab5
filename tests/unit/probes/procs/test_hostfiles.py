"""The texts are in the form of real files; values are chosen to be told apart."""

from __future__ import annotations

from pathlib import Path

from grpo_doctor_probes.procs import hostfiles
from grpo_doctor_probes.procs.hostfiles import Rate

S = 1_000_000_000
STAT = b"cpu  100 10 50 800 40 0 5 3 7 2\ncpu0 1 2 3 4 5 6 7 8 9 10\nintr 1\n"
DISKSTATS = b"""\
   7       0 loop0 9 0 999 0 9 0 999 0 0 0 0
 259       0 nvme0n1 10 0 100 8 20 0 300 26 0 7 27 11 0 0 0 3 12
 259       1 nvme0n1p1 10 0 100 8 20 0 300 26 0 7 27 11 0 0 0 3 12
 253       0 dm-0 10 0 100 8 20 0 300 26 0 7 27 11 0 0 0 3 12
   8       0 sda 1 0 4 0 1 0 6 0 0 0 0
"""
NET_DEV = b"""\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop
    lo:    3193      29    0    0    0     0          0         0     3193      29    0    0
  eth0:290201064    6622    0    0    0     0          0         0   303176    3011    0    0
 bond0: 290201064    6622    0    0    0     0          0         0   303176    3011    0    0
"""


def test_a_rate_is_per_second_of_the_time_between_reads() -> None:
    rate = Rate()
    assert rate.per_s(0, 1000) is None
    assert rate.per_s(S // 2, 1100) == 200
    assert rate.per_s(3 * S // 2, 1100) == 0


def test_cpu_time_leaves_waiting_and_guests_out() -> None:
    assert hostfiles.cpu_time(STAT) == (100 + 10 + 50 + 0 + 5 + 3, 1008)


def test_meminfo() -> None:
    text = b"MemTotal:  24684084 kB\nMemAvailable:   24331216 kB\nHugePages_Total:       0\n"
    sizes = hostfiles.meminfo_bytes(text, b"MemAvailable", b"SwapTotal")
    assert sizes == [24331216 * 1024, None]


def test_disks_count_once() -> None:
    disks = {b"nvme0n1", b"sda"}
    assert hostfiles.disk_bytes(DISKSTATS, disks) == (104 * 512, 306 * 512)


def test_interfaces_count_once() -> None:
    assert hostfiles.net_bytes(NET_DEV, {b"eth0"}) == (290201064, 303176)


def test_major_faults() -> None:
    assert hostfiles.major_faults(b"pgfault 5\npgmajfault 955\npgrefill 1\n") == 955
    assert hostfiles.major_faults(b"pgfault 5\n") is None


def test_pressure() -> None:
    text = b"some avg10=12.50 avg60=0.25 total=4234392\nfull avg10=0.04 avg60=0.23 total=3\n"
    assert hostfiles.pressure_pct(text) == {"some": 12.5, "full": 0.04}
    assert hostfiles.pressure_pct(b"") == {}


def test_whole_disks_are_the_ones_with_a_device(tmp_path: Path) -> None:
    for name in ("loop0", "ram1", "zram0", "dm-0", "md127", "sr0", "nvme0n1", "sda", "vdb"):
        (tmp_path / "block" / name).mkdir(parents=True)
    assert hostfiles.whole_disks(tmp_path) == {b"nvme0n1", b"sda", b"vdb"}
    assert hostfiles.whole_disks(tmp_path / "none") == frozenset()


def test_physical_interfaces_win_over_what_is_built_on_them(tmp_path: Path) -> None:
    links = tmp_path / "class/net"
    for name in ("lo", "eth0", "bond0", "docker0"):
        (links / name).mkdir(parents=True)
    assert hostfiles.counted_links(tmp_path) == {b"eth0", b"bond0"}
    (links / "eth0" / "device").mkdir()
    assert hostfiles.counted_links(tmp_path) == {b"eth0"}
