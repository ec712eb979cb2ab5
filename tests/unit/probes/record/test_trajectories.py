"""Rows of trajectories: open, completed in place, bounded, and never in the way of the job."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from grpo_doctor.trace.merge import merge
from grpo_doctor.trace.spanfile import TRAJECTORY_KINDS, read_span_file
from grpo_doctor.trace.trajectories.table import Table, table_of
from grpo_doctor_probes.record import layout, recorder
from grpo_doctor_probes.record.trajectories import (
    ABORTED,
    CURRENT,
    DONE,
    FAILED,
    OPEN,
    TIMED_OUT,
    Trajectory,
    apart,
    begin,
    outcome_of,
    part,
    taken,
)
from tests.unit.probes.conftest import Recorded, full

NEVER = 1 << 59


def of_file(path: Path) -> tuple[Table, int]:
    """Return its rows, and how many were lost."""
    content = read_span_file(path, TRAJECTORY_KINDS)
    return table_of([(content, 0, NEVER)]), content.header.dropped


def rows(folder: Path) -> Table:
    (path,) = (folder / "ranks").glob("*.trajectories")
    table, lost = of_file(path)
    assert lost == 0
    return table


def begun() -> Trajectory:
    one = begin()
    assert one is not None
    return one


def test_an_error_says_how_a_part_ended(recording: Recorded) -> None:
    one = begun()
    for error in (TimeoutError, asyncio.CancelledError, ValueError):
        with pytest.raises(error), one.part("tool/search"):
            raise error
    assert rows(recording.run_dir).value.tolist() == [OPEN, TIMED_OUT, ABORTED, FAILED]
    assert outcome_of(None) == DONE
    assert outcome_of(type("ReadTimeout", (OSError,), {})) == TIMED_OUT


def test_a_part_is_of_the_trajectory_of_its_task(recording: Recorded) -> None:
    async def work() -> None:
        CURRENT.set(begun())
        await asyncio.gather(call(), call())

    async def call() -> None:
        with part("tool/search"):
            await asyncio.sleep(0)

    async def both() -> None:
        await asyncio.gather(asyncio.create_task(work()), asyncio.create_task(work()))

    asyncio.run(both())
    table = rows(recording.run_dir)
    parts = table.select(table.kind == layout.PART)
    assert sorted(parts.of.tolist()) == [1, 1, 2, 2]


def test_without_a_recording_or_a_trajectory_nothing_happens(tmp_path: Path) -> None:
    assert begin() is None
    with part("generate"), apart("tool/reset"):
        pass
    taken(1.0)
    recorder.start(str(tmp_path))
    with part("generate"):
        pass
    assert not list((tmp_path / "ranks").glob("*.trajectories"))


def test_a_name_is_cut_and_a_model_that_makes_up_names_fills_one_table(recording: Recorded) -> None:
    one = begun()
    for name in ("<b>" * 4000, *(f"{number:0200}" for number in range(1000))):
        one.part(f"tool/{name}").end()
    table = rows(recording.run_dir)
    assert max(map(len, table.names)) <= layout.MAX_NAME_BYTES
    assert "(unnamed)" in {table.names[name] for name in table.name}
    assert len(table.of) == 1002


def test_a_row_whose_segment_is_used_again_is_not_written_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRPO_DOCTOR_MAX_MB", "1")
    recorder.start(str(tmp_path))
    one = begun()
    for _ in range(layout.SEGMENT_RECORDS + 5):
        one.part("tool/a").end()
    held = one.part("tool/held")
    for _ in range(3 * layout.SEGMENT_RECORDS):
        one.part("tool/b").end()
    held.end(FAILED)
    (path,) = (tmp_path / "ranks").glob("*.trajectories")
    table, _ = of_file(path)
    assert not table.called("tool/held").any()
    assert (table.value[table.called("tool/b")] == DONE).all()


def test_a_file_that_another_program_cuts_ends_its_trajectories(recording: Recorded) -> None:
    one = begun()
    (path,) = (recording.run_dir / "ranks").glob("*.trajectories")
    os.truncate(path, 100)
    file = one._file
    file._check_at_ns = 0
    one.part("generate").end()
    one.end()
    assert path.stat().st_size == 100


def test_a_forked_child_leaves_the_file_of_its_parent_alone(recording: Recorded) -> None:
    one = begun()
    pid = os.fork()
    if not pid:
        one.part("tool/child").end()
        os._exit(0)
    os.waitpid(pid, 0)
    assert len(rows(recording.run_dir).of) == 1


def test_a_full_disk_is_no_error_of_the_recorder(
    recording: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("grpo_doctor_probes.record.spanfile._allocate", full)
    assert begin() is None
    assert begin() is None
    assert recording.header.errors == 0
    assert not list(recording.path.parent.glob("*.trajectories"))


def test_a_number_beyond_all_sense_is_bounded(recording: Recorded) -> None:
    one = begun()
    one.note(put=7.0)
    one.end()
    taken(7.0, staleness=-1e300)
    table = rows(recording.run_dir)
    assert table.value.min() == -float(1 << 53)
    trace = merge(recording.run_dir)
    assert trace.trajectories is not None
    assert trace.trajectories.outcomes == {"trained": 1}
