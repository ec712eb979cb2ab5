"""A span file that grows, is full, is bounded, and is closed."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from grpo_doctor.trace.spanfile import read_span_file
from grpo_doctor_probes import phase, step
from grpo_doctor_probes.procs import live
from grpo_doctor_probes.record import layout, recorder, spanfile
from tests.recording import read_rows, spans_file
from tests.unit.probes.conftest import active

SEGMENT = layout.SEGMENT_RECORDS


def record(count: int, first: int = 0) -> None:
    """Records steps, numbered so that it can be seen which were kept."""
    for number in range(first, first + count):
        with step(number):
            pass


def numbers(path: Path) -> list[int]:
    return [int(r.value) for r in read_rows(path) if r.kind == "step"]


def test_a_file_is_bounded_and_keeps_its_first_and_its_newest_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRPO_DOCTOR_MAX_MB", "1")
    recorder.start(str(tmp_path))
    total = 7 * SEGMENT + 100
    record(total)
    path = spans_file(tmp_path)
    assert path.stat().st_size <= 1 << 20
    stored = numbers(path)
    assert stored[:SEGMENT] == list(range(SEGMENT)), "the start of the run"
    newest = stored[SEGMENT:]
    assert newest == list(range(newest[0], total)), "and what came last, without a gap"
    assert len(stored) + live.read_header(path).dropped == total


class Disk:
    """Allocation that fails while `full`; the rest is the real one."""

    def __init__(self, real: Callable[[int, int, int], None]) -> None:
        self.real = real
        self.room_bytes = 1 << 40

    def __call__(self, file: int, offset: int, size: int) -> None:
        if offset + size > self.room_bytes:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.real(file, offset, size)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    disk = Disk(spanfile._allocate)
    monkeypatch.setattr(spanfile, "_allocate", disk)
    return disk


def test_a_full_disk_costs_records_and_they_are_counted(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk.room_bytes = layout.HEADER_BYTES + 2 * layout.SEGMENT_BYTES
    recorder.start(str(tmp_path))
    record(2 * SEGMENT + 50)
    path = spans_file(tmp_path)
    assert live.read_header(path).dropped == 50
    assert [o.name for o in live.read_header(path).open_spans] == []

    disk.room_bytes = 1 << 40
    record(10, first=100_000)  # too soon: room is asked for once a second
    assert live.read_header(path).dropped == 60
    monkeypatch.setattr(spanfile, "_RETRY_AFTER_NS", 0)
    active().file._retry_at_ns = 0
    record(10, first=200_000)
    assert numbers(path)[-10:] == list(range(200_000, 200_010))
    assert live.read_header(path).dropped == 60
    assert live.read_header(path).errors == 0


def test_a_disk_with_room_for_less_than_is_asked_for_gives_that(tmp_path: Path, disk: Disk) -> None:
    disk.room_bytes = layout.HEADER_BYTES + 7 * layout.SEGMENT_BYTES
    recorder.start(str(tmp_path))
    record(7 * SEGMENT)
    assert numbers(spans_file(tmp_path)) == list(range(7 * SEGMENT))
    assert live.read_header(spans_file(tmp_path)).dropped == 0
    record(1)
    assert live.read_header(spans_file(tmp_path)).dropped == 1


def test_a_disk_without_room_for_the_header_refuses(
    tmp_path: Path, disk: Disk, capsys: pytest.CaptureFixture[str]
) -> None:
    disk.room_bytes = 0
    assert not recorder.start(str(tmp_path))
    assert "No space left" in capsys.readouterr().err
    assert list((tmp_path / "ranks").iterdir()) == []


def test_no_room_for_any_segment_still_shows_what_is_open(tmp_path: Path, disk: Disk) -> None:
    disk.room_bytes = layout.HEADER_BYTES
    recorder.start(str(tmp_path))
    with phase("rollout"):
        header = live.read_header(spans_file(tmp_path))
        assert [o.name for o in header.open_spans] == ["rollout"]
    assert live.read_header(spans_file(tmp_path)).dropped == 1


@pytest.mark.parametrize("code", [errno.EOPNOTSUPP, errno.EINVAL])
def test_a_file_system_without_allocation_is_filled_with_zeros(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def refuse(*_: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    recorder.start(str(tmp_path))
    record(3)
    assert numbers(spans_file(tmp_path)) == [0, 1, 2]
    blocks = spans_file(tmp_path).stat().st_blocks * 512
    assert blocks >= layout.HEADER_BYTES + layout.SEGMENT_BYTES


def test_zeros_are_written_to_their_end_where_a_write_takes_a_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.pwrite
    monkeypatch.delattr(os, "posix_fallocate")
    monkeypatch.setattr(os, "pwrite", lambda file, data, at: write(file, data[:100_000], at))
    recorder.start(str(tmp_path))
    file = spans_file(tmp_path)
    assert file.stat().st_size == layout.HEADER_BYTES + layout.SEGMENT_BYTES
    assert file.stat().st_blocks * 512 >= layout.HEADER_BYTES + layout.SEGMENT_BYTES


def test_a_name_may_fill_the_table_to_its_end(tmp_path: Path) -> None:
    recorder.start(str(tmp_path))
    length = layout.NAME_LENGTH.size
    room = layout.NAMES_BYTES
    number = 0
    while room > 2 * (100 + length):
        number += 1
        assert active().file.add_name(b"x" * 100) == number
        room -= 100 + length
    assert active().file.add_name(b"y" * (room - length + 1)) == 0
    assert active().file.add_name(b"z" * (room - length)) == number + 1
    assert active().file.add_name(b"") == 0
    assert live.read_header(spans_file(tmp_path)).names[-1] == "z" * (room - length)


def test_late_threads_may_write_after_the_end(tmp_path: Path) -> None:
    recorder.start(str(tmp_path))
    file = active()
    recorder.stop()
    with Path(tmp_path / "other").open("wb") as unrelated:  # takes the descriptor's number
        for _ in range(2 * SEGMENT):
            file.write(layout.INSTANT, 0, 1, 1, 0.0)
    assert (tmp_path / "other").stat().st_size == 0
    assert unrelated.closed
    assert live.read_header(spans_file(tmp_path)).segments == 1


def test_damage_is_left_out_and_counted(tmp_path: Path) -> None:
    recorder.start(str(tmp_path))
    record(100)
    recorder.stop()
    path = spans_file(tmp_path)
    data = bytearray(path.read_bytes())
    first = layout.HEADER_BYTES + layout.SEGMENT_HEADER_BYTES
    for row, (offset, value) in enumerate([(31, 99), (28, 255), (24, 250), (7, 0x7F), (15, 0)]):
        data[first + row * layout.RECORD_BYTES + offset] = value  # kind, thread, name, times
    data[first + 10 * layout.RECORD_BYTES + 31] = 0  # a write that a kill interrupted
    path.write_bytes(data)
    content = read_span_file(path)
    assert content.damaged == 4
    assert [int(v) for v in content.records["value"]] == [4, *range(5, 10), *range(11, 100)]


def test_recording_does_not_grow_the_process_past_its_files(tmp_path: Path) -> None:
    recorder.start(str(tmp_path))
    record(1000)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    record(20_000)
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown_kib <= 3 * layout.SEGMENT_BYTES // 1024 + 1024


AFTER_A_CUT = {
    "a phase ends": "",
    "a step ends": "with g.step(2):\n    cut()",
    "a phase begins": "cut()\nwith g.phase('late'): pass",
    "a new name": "cut()\ng.counter('fresh', 1.0)",
    "an event": "g.instant('known'); cut(); g.instant('known')",
    "a new thread": "cut()\nt = threading.Thread(target=g.instant, args='x')\nt.start(); t.join()",
    "an exception": "cut()\ntry:\n    with g.phase('p'): raise ValueError\nexcept ValueError: pass",
    "a full segment": f"cut()\nfor n in range({2 * SEGMENT}): g.counter('known', n)",
    "a child": "cut()\npid = os.fork()\nif not pid: os._exit(0)\nos.waitpid(pid, 0)",
    "a decorated call": "f = g.phase('d')(lambda: 0)\nf(); cut(); f()",
}


@pytest.mark.parametrize("operation", AFTER_A_CUT.values(), ids=AFTER_A_CUT)
def test_a_file_that_is_cut_from_outside_costs_the_recording_alone(
    tmp_path: Path, operation: str
) -> None:
    source = f"""
import glob, os, threading, time
import grpo_doctor_probes as g
def cut():
    for path in glob.glob({str(tmp_path)!r} + "/ranks/*.spans"):
        os.truncate(path, 0)
    begin = time.monotonic()
    while time.monotonic() - begin < 0.002: pass  # the file is looked at once a millisecond
with g.step(0), g.phase("rollout"): g.instant("known"); g.counter("known", 0)
with g.step(1), g.phase("rollout"):
    {"cut()" if not operation else "pass"}
{operation}
print("END")
"""
    environment = {**os.environ, "GRPO_DOCTOR_RUN_DIR": str(tmp_path)}
    ended = subprocess.run(
        [sys.executable, "-c", source], env=environment, capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout) == (0, "END\n")
    assert ended.stderr.count("made shorter by another program") <= 1
