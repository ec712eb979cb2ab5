"""The sample file and its rows."""

from __future__ import annotations

import json
import math
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from grpo_doctor_probes.gpu.device import GpuRow
from grpo_doctor_probes.samplers.file import RowWriter, SampleFile, sample_path
from grpo_doctor_probes.samplers.tracks import Reading, Track

UTIL = Track("gpu.util", "%", gpu="GPU-1")
MEMORY = Track("gpu.process_memory", "bytes", gpu="GPU-1", pid=4242)
RANK = Track("rank.cpu", "%", pid=4242, rank=3)
HOST = Track("host.psi_io", "%")
S = 1_000_000_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return sample_path(tmp_path, "node-1.example")


def test_the_path_holds_the_host_and_nothing_that_leaves_the_folder(tmp_path: Path) -> None:
    assert sample_path(tmp_path, "n1").relative_to(tmp_path).as_posix() == "hosts/n1.samples.jsonl"
    assert sample_path(tmp_path, "../a b").parent == tmp_path / "hosts"


def test_lines_are_appended_and_private(path: Path) -> None:
    for line in (b"1\n", b"2\n"):
        file = SampleFile(path)
        file.open()
        file.write(line)
        file.close()
    assert path.read_bytes() == b"1\n2\n"
    assert file.size_bytes == 4
    assert path.stat().st_mode & 0o777 == 0o600
    assert file.problem is None


def test_a_folder_that_cannot_be_made_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("a file is in the way")
    file = SampleFile(sample_path(tmp_path, "a"))
    file.open()
    assert file.problem is not None
    file.write(b"1\n")
    file.close()


@contextmanager
def file_size_limit(limit_bytes: int) -> Iterator[None]:
    # Only around the writes: pytest's own output may go to a file, and has the same limit.
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_half_a_line_is_taken_back(path: Path) -> None:
    file = SampleFile(path)
    file.open()
    with file_size_limit(10):
        file.write(b"1234567\n")
        file.write(b"does not fit\n")
    assert file.problem is not None
    assert path.read_bytes() == b"1234567\n"


def test_a_recording_is_written_exactly_like_this() -> None:
    rows = RowWriter()
    gpu = GpuRow("GPU-1", 0, "NVIDIA H200", 150, None, True, ("gpm: not supported",))
    mig = GpuRow("GPU-2", 1, "A100", None, "on", False, ())
    written = [
        rows.header("a", 10.0, 123, 456, "boot/time"),
        rows.tick(
            1 * S,
            [
                Reading({HOST: 0.12}, [], ["no PSI"]),
                Reading({UTIL: 45.04, MEMORY: 7e9, RANK: 99.96}, [gpu, mig]),
            ],
        ),
        rows.tick(2 * S, [Reading({HOST: 0.14, UTIL: None, MEMORY: 7e9}, libraries=["torch"])]),
        rows.note(2 * S, "half the rate", hz=5.0),
        rows.end(3 * S, 2),
    ]
    assert b"".join(written).decode().splitlines() == [
        '{"format":1,"host":"a","clock":"monotonic","clock_id":"boot/time","t_ns":123,"unix_ns":456,"hz":10.0}',
        '{"note":"no PSI","t":1000000000}',
        '{"track":0,"name":"host.psi_io","unit":"%"}',
        (
            '{"gpu":"GPU-1","index":0,"name":"NVIDIA H200","memory_total_bytes":150,"mig":null,'
            '"visible":true,"missing":["gpm: not supported"]}'
        ),
        (
            '{"gpu":"GPU-2","index":1,"name":"A100","memory_total_bytes":null,'
            '"mig":"on","visible":false,"missing":[]}'
        ),
        '{"track":1,"name":"gpu.util","unit":"%","gpu":"GPU-1"}',
        '{"track":2,"name":"gpu.process_memory","unit":"bytes","gpu":"GPU-1","pid":4242}',
        '{"track":3,"name":"rank.cpu","unit":"%","pid":4242,"rank":3}',
        '{"t":1000000000,"v":{"0":0.1,"1":45.0,"2":7000000000,"3":100.0}}',
        '{"libraries":["torch"],"t":2000000000}',
        '{"t":2000000000,"v":{"1":null}}',
        '{"note":"half the rate","t":2000000000,"hz":5.0}',
        '{"end":true,"t":3000000000,"ticks":2}',
    ]


def test_unchanged_values_make_a_row_once_a_second_only() -> None:
    rows = RowWriter()
    first = rows.tick(0, [Reading({HOST: 1.0})])
    assert first.count(b"\n") == 2
    assert rows.tick(S // 2, [Reading({HOST: 1.0})]) == b""
    assert json.loads(rows.tick(S, [Reading({HOST: 1.0})])) == {"t": S, "v": {}}
    assert rows.tick(S + S // 2, [Reading({HOST: 1.0})]) == b""


def test_a_track_is_declared_by_its_first_number() -> None:
    rows = RowWriter()
    assert b"track" not in rows.tick(0, [Reading({UTIL: None})])
    declaration, values = rows.tick(1, [Reading({UTIL: 0.0})]).splitlines()
    assert json.loads(declaration)["track"] == 0
    assert json.loads(values)["v"] == {"0": 0.0}


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_json_cannot_say_is_null(value: float) -> None:
    rows = RowWriter()
    rows.tick(0, [Reading({UTIL: 1.0})])
    assert json.loads(rows.tick(1, [Reading({UTIL: value})]))["v"] == {"0": None}
