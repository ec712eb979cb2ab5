"""Where a recording goes, what happens where it can't, and the pauses that it counts."""

from __future__ import annotations

import gc
import json
import signal
import stat
import threading
from pathlib import Path

import pytest

from grpo_doctor_probes import counter, instant, phase, step
from grpo_doctor_probes.procs import live
from grpo_doctor_probes.record import recorder
from grpo_doctor_probes.record.recorder import LONGEST, SECONDS, Pauses
from grpo_doctor_probes.record.rundir import MAX_MB_VARIABLE, RUN_DIR_VARIABLE
from tests.recording import read_rows, spans_file
from tests.unit.probes.conftest import Recorded, active, in_threads


def test_the_first_span_starts_the_recording_that_the_environment_asks_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(RUN_DIR_VARIABLE, str(tmp_path))
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("LOCAL_RANK", "1")
    with phase("init"):
        pass
    path = spans_file(tmp_path, rank=3)
    assert live.read_header(path).rank == 3
    facts = json.loads(path.with_suffix(".json").read_text())
    assert (facts["rank"], facts["local_rank"], facts["world_size"]) == (3, 1, None)
    assert len(facts["clocks"]) == 1


def test_a_process_that_empties_its_environment_is_recorded_as_it_began(tmp_path: Path) -> None:
    recorder.remember(str(tmp_path / "first"), 3)
    recorder.remember(str(tmp_path / "second"), 4)  # the first word counts
    with phase("init"):
        pass
    assert live.read_header(spans_file(tmp_path / "first", rank=3)).rank == 3
    assert not (tmp_path / "second").exists()


def test_files_are_private_to_the_user(recording: Recorded) -> None:
    with phase("init"):
        pass
    for path in (recording.path, recording.path.with_suffix(".json")):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(recording.path.parent.stat().st_mode) == 0o700


def test_after_the_end_nothing_starts_by_itself(
    recording: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(RUN_DIR_VARIABLE, str(recording.run_dir))
    recorder.stop()
    with phase("late"):
        pass
    assert recorder.ACTIVE is None
    assert recorder.start()


@pytest.mark.parametrize(
    ("variable", "value"),
    [(MAX_MB_VARIABLE, "inf"), (MAX_MB_VARIABLE, "many"), ("RANK", "1e9"), ("RANK", "9" * 30)],
)
def test_a_setting_that_makes_no_sense_is_said_once(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    variable: str,
    value: str,
) -> None:
    monkeypatch.setenv(RUN_DIR_VARIABLE, str(tmp_path))
    monkeypatch.setenv(variable, value)
    for _ in range(3):
        with phase("init"):
            pass
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    assert message.startswith("grpo-doctor: not recording this process: ")
    assert list(tmp_path.rglob("*.spans")) == []


@pytest.mark.parametrize("is_heard", [True, False])
def test_a_folder_that_can_not_be_made_is_said_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    *, is_heard: bool,
) -> None:  # fmt: skip
    if not is_heard:
        monkeypatch.setattr("sys.stderr", None)
    (tmp_path / "file").touch()
    assert not recorder.start(str(tmp_path / "file"))
    for _ in range(3):
        with step(1), phase("init"):
            counter("tokens", 1)
            instant("oom")
    message = capsys.readouterr().err
    assert message.count("\n") == is_heard
    assert (str(tmp_path / "file") in message) is is_heard


def test_threads_that_start_together_make_one_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(RUN_DIR_VARIABLE, str(tmp_path))
    together = threading.Barrier(8)

    def work() -> None:
        together.wait()
        with phase("init"):
            pass

    in_threads(work, 8)
    assert len(list((tmp_path / "ranks").glob("*.spans"))) == 1
    assert len(read_rows(spans_file(tmp_path))) == 8


def test_a_signal_handler_may_record_wherever_it_interrupts(
    recording: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while the interrupted span holds the lock of the name table, without waiting long."""
    monkeypatch.setattr("grpo_doctor_probes.record.spanfile._PATIENCE_S", 0.01)

    def handle(*_: object) -> None:
        with phase("checkpoint"):
            pass

    before = signal.signal(signal.SIGUSR1, handle)
    try:
        with active().file._lock:
            signal.raise_signal(signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert recording.names == ["(unnamed)"]
    handle()
    assert recording.rows[-1].name == "checkpoint"


class Node:
    """One of many objects that a collection has to look at."""

    def __init__(self, next_node: Node | None) -> None:
        self.next = next_node


def many_objects() -> list[Node]:
    return [Node(None) for _ in range(200_000)]


def test_the_pauses_of_a_step_are_its_counters(recording: Recorded) -> None:
    objects = many_objects()
    with step(1), phase("train"):
        gc.collect()
        gc.collect()
    assert len(objects) == 200_000
    *_, total, longest, end = recording.rows
    assert (total.name, longest.name, end.name) == (SECONDS, LONGEST, "step")
    # Two collections of 200,000 objects: some 4 ms each, and never the whole step.
    assert 1e-3 < longest.value < total.value < (end.end_ns - end.start_ns) / 1e9
    assert end.start_ns < total.start_ns < end.end_ns


def test_a_collection_that_had_begun_before_is_not_counted() -> None:
    pauses = Pauses()
    try:
        pauses._heard("stop", {})
        assert pauses.take() is None
    finally:
        pauses.close()
