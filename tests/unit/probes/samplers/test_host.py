from __future__ import annotations

import os
from pathlib import Path

import pytest

from grpo_doctor_probes.samplers.host import HostSampler

S = 1_000_000_000
PRESSURE = {"host.psi_cpu", "host.psi_memory", "host.psi_io"}


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """A /proc, /sys and /dev/shm of a host."""
    proc = tmp_path / "proc"
    (proc / "pressure").mkdir(parents=True)
    (proc / "7").mkdir()
    (proc / "7/cgroup").write_text("0::/job\n")
    (proc / "stat").write_text("cpu  0 0 0 0 0 0 0 0 0 0\n")
    (proc / "meminfo").write_text("MemAvailable: 1000 kB\nSwapTotal: 100 kB\nSwapFree: 40 kB\n")
    (proc / "vmstat").write_text("pgfault 1\npgmajfault 0\n")
    for part, pct in (("cpu", 1), ("memory", 2), ("io", 3)):
        (proc / "pressure" / part).write_text(f"some avg10={pct}.00 avg60=9.00\n")
    return tmp_path


def sampler(host: Path) -> HostSampler:
    return HostSampler(7, proc=host / "proc", sys=host / "sys", shm=host)


def values(source: HostSampler, now_ns: int) -> dict[str, float | None]:
    return {track.name: value for track, value in source.read(now_ns).values.items()}


def test_all_tracks_with_their_units(host: Path) -> None:
    source = sampler(host)
    first = source.read(0)
    assert first.notes == []
    proc = host / "proc"
    (proc / "stat").write_text("cpu  30 0 0 70 0 0 0 0 0 0\n")
    (proc / "vmstat").write_text("pgfault 1\npgmajfault 8\n")
    second = source.read(2 * S)
    source.close()
    by_name = {(track.name, track.unit): value for track, value in second.values.items()}
    assert by_name.pop(("host.shm_used", "bytes")) == pytest.approx(_used_bytes(host), rel=0.2)
    assert by_name.pop(("host.shm_size", "bytes")) == _size_bytes(host)
    assert by_name == {
        ("host.cpu", "%"): 30,
        ("host.psi_cpu", "%"): 1,
        ("host.psi_memory", "%"): 2,
        ("host.psi_io", "%"): 3,
        ("host.memory_available", "bytes"): 1000 * 1024,
        ("host.swap_used", "bytes"): 60 * 1024,
        ("host.major_faults", "1/s"): 4,
    }


@pytest.mark.parametrize(
    ("file", "text", "name", "counts", "values_read"),
    [
        ("stat", "cpu  {} 0 0 0 0 0 0\n", "host.cpu",
         ("300 0 0 700", "330 0 0 770", "330 0 0 770", "340 0 0 770"), [None, 30, None, 100]),
        # A counter that fell starts over.
        ("vmstat", "pgfault 1\npgmajfault {}\n", "host.major_faults",
         ("100", "100", "350", "20", "30"), [None, 0, 250, None, 10]),
        ("vmstat", "pgfault 1\n{}\n", "host.major_faults",
         ("pgmajfault 1", "pgmajfault 3", "", ""), [None, 2, None, None]),
    ],
)  # fmt: skip
def test_what_is_counted_is_of_the_time_since_the_read_before(
    host: Path, file: str, text: str, name: str, counts: tuple[str, ...],
    values_read: list[float | None],
) -> None:  # fmt: skip
    source = sampler(host)
    found = []
    for at_s, count in enumerate(counts):
        (host / "proc" / file).write_text(text.format(count))
        found.append(values(source, at_s * S).get(name))
    source.close()
    assert found == values_read


@pytest.mark.parametrize("lacks", ["SwapTotal", "SwapFree", "MemAvailable"])
def test_a_kernel_that_lacks_a_number_of_memory_gives_the_others(host: Path, lacks: str) -> None:
    meminfo = host / "proc/meminfo"
    lines = meminfo.read_text().replace(" kB", " kB\n").split("\n")
    meminfo.write_text("".join(f"{line}\n" for line in lines if line and lacks not in line))
    source = sampler(host)
    names = {name for name in values(source, 0) if name.split(".")[1][:4] in ("memo", "swap")}
    source.close()
    assert names == ({"host.swap_used"} if lacks[0] == "M" else {"host.memory_available"})


def _size_bytes(path: Path) -> int:
    size = os.statvfs(path)
    return size.f_blocks * size.f_frsize


def _used_bytes(path: Path) -> int:
    size = os.statvfs(path)
    return (size.f_blocks - size.f_bfree) * size.f_frsize


def test_slow_parts_are_read_once_a_second(host: Path) -> None:
    source = sampler(host)
    assert "host.psi_io" in values(source, 0)
    assert "host.psi_io" not in values(source, S // 2)
    assert "host.memory_available" in values(source, S // 2 + 1)
    assert "host.psi_io" in values(source, S)
    source.close()


@pytest.mark.parametrize(
    ("file", "part", "lost", "begins"),
    [
        ("proc/pressure/io", "pressure (PSI)", PRESSURE, 0),
        ("proc/vmstat", "major page faults", {"host.major_faults"}, 1),
    ],
)
def test_a_part_that_this_host_lacks_or_that_breaks_later_is_noted_once(
    host: Path, file: str, part: str, lost: set[str], begins: int
) -> None:
    source = sampler(host)
    if begins:
        source.read(0)
        (host / file).write_text("nonsense\npgmajfault x\n")
    else:
        (host / file).unlink()
    reading = source.read(2 * S)
    (note,) = reading.notes
    assert note.startswith(f"{part} is not sampled: ")
    found = {track.name: value for track, value in reading.values.items()}
    assert {name: found.get(name) for name in lost} == dict.fromkeys(lost)
    later = source.read(4 * S)
    source.close()
    assert later.notes == []
    assert not lost & {track.name for track in later.values}


def test_the_limit_of_the_container_counts_where_it_is_smaller(host: Path) -> None:
    job = host / "sys/fs/cgroup/job"
    job.mkdir(parents=True)
    (job / "memory.max").write_text("500000\n")
    (job / "memory.current").write_text("400000\n")
    (job / "memory.stat").write_text("anon 1\n")
    source = sampler(host)
    assert values(source, 0)["host.memory_available"] == 100000
    (job / "memory.current").write_text("100000\n")
    assert values(source, S)["host.memory_available"] == 400000
    source.close()


def test_this_host_can_be_sampled() -> None:
    source = HostSampler(os.getpid())
    sampled = values(source, 0) | values(source, 2 * S)
    for second in range(3, 10**6):  # the kernel counts in 10 ms
        if "host.cpu" in sampled:
            break
        sampled |= values(source, second * S)
    source.close()
    assert 0 <= (sampled["host.cpu"] or 0) <= 100
    assert (sampled["host.memory_available"] or 0) > 0
