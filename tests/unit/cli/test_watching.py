"""What `run` says and writes of hangs, and work beside a thread that must never wait."""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import threading
import time
from pathlib import Path
from typing import TextIO

import pytest

from grpo_doctor.cli import watching
from grpo_doctor.cli.watching import Beside, with_flight_recorder
from grpo_doctor_probes.supervisor.deaths import Death, DeathWatch, Subject
from grpo_doctor_probes.supervisor.inquiry import Answer
from grpo_doctor_probes.supervisor.job import Ended, Job
from grpo_doctor_probes.supervisor.launch import Launch
from grpo_doctor_probes.supervisor.liveline import LiveLine
from grpo_doctor_probes.supervisor.members import Members
from grpo_doctor_probes.supervisor.watchdog import Hang, Suspicion
from tests.unit.cli.attached import Captured
from tests.unit.probes.conftest import fill
from tests.unit.probes.supervisor.watched import header, span

LIMITS: dict[str, None] = dict.fromkeys(("hang_after", "stop_after", "at_most"))
OPTIONS = argparse.Namespace(no_live=True, no_watchdog=False, on_hang="report", **LIMITS)
LAUNCH = Launch(("true",), dict(os.environ), bundled=False, world_size=None)


def hang(folder: Path, document: dict[str, object], not_kept: str = "") -> Hang:
    suspicion = Suspicion((1,), frozenset({4711}), "reward", 40.0)
    return Hang(suspicion, Answer("stuck", "Rank 1 sleeps.", document, folder, not_kept), 4, 5)


def watched_with(tmp_path: Path, **options: object) -> tuple[watching.Watching, Job]:
    job = Job(LAUNCH)
    chosen = argparse.Namespace(**{**vars(OPTIONS), **options})
    return watching.Watching(chosen, LAUNCH, ["true"], tmp_path, job), job


def test_variables_are_set_said_and_have_their_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setattr(watching, "visible_gpus", lambda: 8)
    monkeypatch.setattr("grpo_doctor_probes.supervisor.flightenv.torch_version", lambda _: (2, 9))
    launch = Launch(("swift",), {"TORCH_NCCL_DUMP_ON_TIMEOUT": "0"}, False, None)
    changed, added = with_flight_recorder(launch, ["swift"], tmp_path)
    assert set(added) == {"TORCH_FR_BUFFER_SIZE", "TORCH_FR_DUMP_TEMP_FILE"}
    assert changed.environment == {"TORCH_NCCL_DUMP_ON_TIMEOUT": "0", **added}
    assert (tmp_path / "flight").is_dir()
    assert "TORCH_FR_BUFFER_SIZE=2000" in capsys.readouterr().err


@pytest.mark.parametrize("not_kept", ["", "no space left."])
def test_a_verdict_that_cannot_be_drawn_or_kept_is_still_said(
    tmp_path: Path, capsys: Captured, not_kept: str
) -> None:
    watched, job = watched_with(tmp_path)
    watched._hear(hang(tmp_path / "hangs/0", {"verdict": {"state": "stuck"}}, not_kept))
    output = capsys.readouterr().err
    assert output.splitlines()[1] == "Rank 1 sleeps."
    assert ("could not be saved: no space left." in output) is bool(not_kept)
    assert not (not_kept and "--replay" in output)
    after = watched.close(job.wait(lambda: None, 0.01))
    assert after.remarks == ("Rank 1 sleeps.",)
    bundle = None if not_kept else str(tmp_path / "hangs/0")
    assert after.facts["hangs"][0]["bundle"] == bundle


def test_variables_whose_folder_cannot_be_made_are_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setattr(watching, "visible_gpus", lambda: 8)
    (tmp_path / "flight").write_text("in the way")
    assert with_flight_recorder(LAUNCH, ["true"], tmp_path) == (LAUNCH, {})
    assert "are not set" in capsys.readouterr().err


def test_a_job_that_is_told_to_end_is_not_watched_for_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched, job = watched_with(tmp_path)
    calls: list[str] = []
    monkeypatch.setattr(watched._watchdog, "rest", lambda: calls.append("rest"))
    monkeypatch.setattr(watched._watchdog, "tick", lambda *_: calls.append("tick"))
    for ending in (False, True):
        monkeypatch.setattr(Job, "is_ending", ending)
        watched.tick({})
        watched.close_line()
    watched.close(job.wait(lambda: None, 0.01))
    assert calls == ["tick", "rest", "rest"]  # the last one as it closes


@pytest.mark.parametrize(("state", "waits"), [("finished", False), ("failed", True)])
def test_the_last_look_is_waited_for_only_where_it_may_explain_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str, waits: bool
) -> None:
    watched, job = watched_with(tmp_path)
    waited: list[float] = []
    monkeypatch.setattr(watched._watchdog, "close", lambda *, wait_s: waited.append(wait_s))
    job.wait(lambda: None, 0.01)
    watched.close(Ended(state, 0, None, 0))
    assert [bool(seconds) for seconds in waited] == [waits]


def test_a_defect_of_the_watchdog_costs_the_job_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    watched, job = watched_with(tmp_path)
    monkeypatch.setattr(watched._headers, "read", lambda _: 1 / 0)
    for _ in range(2):
        watched.tick({})
        watched.close_line()
    output = capsys.readouterr().err
    assert output.count("internal error") == 1
    assert watched.close(job.wait(lambda: None, 0.01)).facts == {}
    assert "Please report it" in capsys.readouterr().err


def drained(reader: int) -> bytes:
    """All that is in a pipe."""
    os.set_blocking(reader, False)
    content = b""
    with contextlib.suppress(BlockingIOError):
        while True:
            content += os.read(reader, 1 << 16)
    return content


def test_where_no_more_can_be_said_nobody_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stalled terminal: the thread beside hangs in it, and signals must still be passed on."""
    monkeypatch.setattr(watching, "_HANGS_S", 0.0)
    reader, writer = os.pipe()
    fill(writer)
    job, gate = Job(LAUNCH), threading.Event()
    watched = watching.Watching(OPTIONS, LAUNCH, ["true"], tmp_path, job)
    watched._beside.do(lambda: (gate.wait(30), None)[1])
    with monkeypatch.context() as changed, os.fdopen(writer, "w") as stream:
        changed.setattr("sys.stderr", stream)
        tick = threading.Thread(target=watched.tick, args=({},), daemon=True)
        tick.start()
        tick.join(5)
        waits = tick.is_alive()
        drained(reader)
        watched.tick({})
        watched.tick({})
        output = drained(reader)
    os.close(reader)
    gate.set()
    watched.close_line()
    watched.close(job.wait(lambda: None, 0.01))
    assert not waits
    assert output.count(b"hangs; the job continues") == 1


def test_a_run_directory_that_hangs_holds_nobody_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setattr(watching, "_HANGS_S", 0.2)
    monkeypatch.setattr(watching, "_LET_GO_S", 0.2)
    (tmp_path / "ranks").mkdir()
    os.mkfifo(tmp_path / "ranks" / "00000.spans")  # nobody will ever write to it
    watched, job = watched_with(tmp_path)
    end = job.wait(lambda: None, 0.01)
    watched.tick({})
    deadline = time.monotonic() + 10
    while watched._beside.busy_s < 0.3:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    watched.tick({})
    watched.tick({})
    watched.close_line()
    assert watched.close(end).remarks == ("the watchdog hung: its last observations are lost",)
    assert capsys.readouterr().err.count("hangs; the job continues") == 1
    (tmp_path / "ranks" / "00000.spans").write_bytes(b"")  # lets the thread go


@pytest.mark.parametrize(("on_hang", "stopped"), [("report", False), ("stop", True)])
def test_a_hang_ends_the_job_only_where_that_was_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured, on_hang: str, stopped: bool
) -> None:
    done: list[str] = []
    monkeypatch.setattr(Job, "stop", lambda job, kill: done.append("stop"))
    watched, job = watched_with(tmp_path, on_hang=on_hang)
    watched._hear(hang(tmp_path / "0", {"verdict": {"state": "stuck"}}))
    watched.close(job.wait(lambda: None, 0.01))
    assert done == ["stop"] * stopped
    output = capsys.readouterr().err
    assert ("ending the job, as --on-hang stop asks" in output) is stopped


@pytest.mark.parametrize(
    ("state", "explained", "end"),
    [
        ("finished", False, False),
        ("interrupted", False, False),
        ("failed", True, False),
        ("killed", True, False),
        ("hung", False, True),
    ],
)
def test_who_died_is_told_of_a_bad_end_and_what_is_left_of_a_hang_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str, explained: bool, end: bool
) -> None:
    ends: list[float] = []
    monkeypatch.setattr(Members, "end", lambda members, grace_s: ends.append(grace_s))
    monkeypatch.setattr(watching, "obituary", lambda deaths, phases: ["rank 1 died first"])
    watched, job = watched_with(tmp_path)
    job.wait(lambda: None, 0.01)
    after = watched.close(Ended(state, 0, None, 0))
    assert after.remarks == ("rank 1 died first",) * explained
    assert bool(ends) is end


def test_the_dead_are_written_down_with_where_they_stood(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched, job = watched_with(tmp_path)
    places = {1: "train", 2: None, 3: None}
    headers = [
        header(span("train", 1.0), rank=0, pid=1),
        header(span("train", 1.0), rank=1, pid=2, closed_ns=5),  # it ended in order
        header(rank=2, pid=3),
    ]
    deaths = [Death(Subject(pid, f"rank {pid}", pid), pid, 9) for pid in places]
    monkeypatch.setattr(watched._headers, "read", lambda ranks: headers)
    monkeypatch.setattr(DeathWatch, "close", lambda watch: deaths)
    job.wait(lambda: None, 0.01)
    facts = watched.close(Ended("failed", 1, None, 0)).facts
    assert {fact["pid"]: fact["phase"] for fact in facts["deaths"]} == places


@pytest.mark.parametrize(
    ("no_live", "stream", "shown"),
    [(False, True, True), (True, True, False), (False, False, False)],
)
def test_a_live_line_needs_a_stream_and_leave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_live: bool, stream: bool, shown: bool
) -> None:
    lines: list[TextIO] = []

    def live_line(stream: TextIO) -> LiveLine:
        lines.append(stream)
        return LiveLine(stream)

    monkeypatch.setattr(watching, "LiveLine", live_line)
    terminal = io.StringIO() if stream else None
    monkeypatch.setattr("sys.stderr", terminal)
    watched, job = watched_with(tmp_path, no_live=no_live)
    watched.close(job.wait(lambda: None, 0.01))
    assert lines == [terminal] * shown


def test_what_comes_while_it_works_is_left_out() -> None:
    beside, gate = Beside("test"), threading.Event()
    done: list[int] = []

    def at_the_gate() -> None:
        gate.wait(30)
        done.append(1)

    assert beside.do(at_the_gate)
    assert not beside.do(lambda: done.append(2))
    assert 0 < beside.busy_s < 30
    assert not beside.settle(0.01)
    gate.set()
    assert beside.settle(30)
    assert beside.busy_s == 0
    assert beside.do(lambda: done.append(3))
    assert beside.settle(30)
    assert done == [1, 3]
    beside.close()
    beside._thread.join(30)
    assert not beside._thread.is_alive()
