"""The closer look as a child process: answers, refusals, crashes, time limits."""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
from pathlib import Path

import pytest

from grpo_doctor_probes.procs.procstat import state_of
from grpo_doctor_probes.supervisor import inquiry
from grpo_doctor_probes.supervisor.inquiry import Answer, Inquiry, made_with_room
from tests.unit.probes.conftest import until

PATIENCE_S = 60


def only_in(disk: Path | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is room below that place alone."""

    def has_room(folder: Path, _ranks: int) -> bool:
        return disk is not None and folder.is_relative_to(disk)

    monkeypatch.setattr(inquiry, "_has_room", has_room)


@pytest.mark.parametrize(
    ("room_in", "in_the_way", "parent"),
    [
        ("", False, "hangs"), ("temporary", False, "temporary"), ("", True, "temporary"),
        (None, False, None),
    ],
)  # fmt: skip
def test_a_bundle_is_where_it_was_wanted_or_among_temporary_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room_in: str | None, parent: str | None,
    *, in_the_way: bool,
) -> None:  # fmt: skip
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    if in_the_way:
        (tmp_path / "hangs").write_text("a file")
    only_in(None if room_in is None else tmp_path / room_in, monkeypatch)
    for _ in range(2):
        made = made_with_room(tmp_path / "hangs" / "0", 8)
        assert (made and made.parent) == (parent and tmp_path / parent)
        assert made is None or made.stat().st_mode & 0o077 == 0
    assert (tmp_path / "hangs" / "0").exists() is (parent == "hangs")


def ask(folder: Path, code: str, **more: float) -> Inquiry:
    return Inquiry([4711, 4712], folder, command=(sys.executable, "-c", code), **more)


def answer(inquiry: Inquiry) -> Answer:
    reply = inquiry.wait(PATIENCE_S)
    assert reply is not None
    return reply


def printing(verdict: dict[str, object]) -> str:
    return f"print({json.dumps({'verdict': verdict})!r})"


@pytest.mark.parametrize(
    ("verdict", "state", "hangs", "culprits"),
    [
        ({"state": "stuck", "class": "unknown", "culprits": [1, 3]}, "stuck", True, (1, 3)),
        ({"state": "dead", "class": "rank-dead", "culprits": []}, "dead", True, ()),
        ({"state": "slow", "class": "reward-busy", "culprits": "12"}, "slow", False, ()),
        ({"state": "healthy", "class": "", "culprits": None}, "healthy", False, ()),
        ({"state": "dead", "class": "", "culprits": ["a", 2, None]}, "gone", False, (2,)),
        ({"state": "slow", "class": "unknown"}, "unknown", False, ()),
        ({"state": "from a later version", "class": ""}, "unknown", False, ()),
    ],
)
def test_a_verdict_is_read(
    tmp_path: Path, verdict: dict[str, object], state: str, culprits: tuple[int, ...], *,
    hangs: bool,
) -> None:  # fmt: skip
    reply = answer(ask(tmp_path / "0", printing({**verdict, "summary": "a\x1b[2J\nb"})))
    assert (reply.state, reply.hangs, reply.culprits) == (state, hangs, culprits)
    assert reply.summary == "a?[2J?b"  # names from the job cannot steer the terminal


@pytest.mark.parametrize(
    "printed", ["no JSON", "[]", "null", "{}", '{"verdict": []}', '{"verdict": null}', '"verdict"']
)
def test_what_is_no_verdict_is_a_look_that_went_wrong(tmp_path: Path, printed: str) -> None:
    reply = answer(ask(tmp_path / "0", f"print({printed!r}, end='')"))
    assert (reply.state, reply.summary) == ("failed", "`grpo-doctor attach` ended with 0")
    assert reply.folder == tmp_path / "0"


def test_one_that_takes_too_long_is_ended_with_what_it_started(tmp_path: Path) -> None:
    written = tmp_path / "child"
    code = (
        "import pathlib, subprocess, time\n"
        "child = subprocess.Popen(['sleep', '600'])\n"
        f"pathlib.Path({str(written)!r}).write_text(str(child.pid))\n"
        "time.sleep(600)"
    )
    inquiry = ask(tmp_path / "0", code, at_most_s=0.5)
    until(lambda: written.exists() and written.read_text())
    reply = until(inquiry.poll)
    assert (reply.state, reply.folder) == ("failed", tmp_path / "0")
    assert "more than" in reply.summary
    until(lambda: state_of(f"/proc/{written.read_text()}") in ("", "Z"))


def test_without_room_anywhere_there_is_a_verdict_and_no_bundle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only_in(None, monkeypatch)
    code = "import json, sys; print(json.dumps({'verdict': {'summary': ' '.join(sys.argv[1:])}}))"
    found = answer(ask(tmp_path / "0", code))
    assert found.summary == "4711 4712 --json"
    assert "no space" in found.not_kept
    failed = answer(ask(tmp_path / "0", "raise SystemExit(1)"))
    slow = ask(tmp_path / "1", "import time; time.sleep(600)", at_most_s=0)
    given_up = until(slow.poll)
    assert (failed.folder, given_up.folder) == (tmp_path / "0", tmp_path / "1")


def test_the_terminals_signals_are_for_the_job(tmp_path: Path) -> None:
    inquiry = ask(tmp_path / "0", "import time; time.sleep(600)")
    assert os.getpgid(inquiry._process.pid) != os.getpgrp()
    assert os.getsid(inquiry._process.pid) == inquiry._process.pid
    inquiry.cancel()
    assert inquiry._process.returncode == -signal.SIGKILL


def test_what_it_left_can_be_taken_away_and_is_the_users_alone(tmp_path: Path) -> None:
    inquiry = ask(tmp_path / "hangs" / "0", printing({"state": "slow", "class": "reward-busy"}))
    answer(inquiry)
    (folder,) = (tmp_path / "hangs").iterdir()
    assert (folder.name, folder.stat().st_mode & 0o077) == ("0", 0)
    inquiry.discard()
    inquiry.discard()
    assert list((tmp_path / "hangs").iterdir()) == []


def test_a_verdict_whose_bundle_could_not_be_written_says_why(tmp_path: Path) -> None:
    code = (
        f"import sys; {printing({'state': 'stuck', 'class': 'unknown'})}\n"
        "print('grpo-doctor: no space left.', file=sys.stderr); sys.exit(4)"
    )
    reply = answer(ask(tmp_path / "0", code))
    assert (reply.state, reply.not_kept) == ("stuck", "no space left.")
    second_reply = answer(ask(tmp_path / "1", printing({"state": "stuck", "class": "unknown"})))
    assert second_reply.not_kept == ""
