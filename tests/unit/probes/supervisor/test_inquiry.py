"""The closer look as a child process: answers, refusals, crashes, time limits."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from grpo_doctor_probes.supervisor.inquiry import Answer, Inquiry, one_line

PATIENCE_S = 60


def ask(folder: Path, code: str, **more: float) -> Inquiry:
    return Inquiry([4711, 4712], folder, command=(sys.executable, "-c", code), **more)


def answer(inquiry: Inquiry) -> Answer:
    found = inquiry.wait(PATIENCE_S)
    assert found is not None
    return found


def printing(verdict: dict[str, object]) -> str:
    return f"print({json.dumps({'verdict': verdict})!r})"


def test_it_is_asked_about_the_pids_and_told_where_to_put_the_bundle(tmp_path: Path) -> None:
    code = "import json, sys; print(json.dumps({'verdict': {'summary': ' '.join(sys.argv[1:])}}))"
    found = answer(ask(tmp_path / "0", code))
    assert found.summary == f"4711 4712 --out {tmp_path / '0'} --json"


@pytest.mark.parametrize(
    ("verdict", "state", "hangs"),
    [
        ({"state": "stuck", "class": "unknown"}, "stuck", True),
        ({"state": "dead", "class": "rank-dead"}, "dead", True),
        ({"state": "slow", "class": "reward-busy"}, "slow", False),
        ({"state": "healthy", "class": ""}, "healthy", False),
        ({"state": "slow", "class": "unknown"}, "unknown", False),
        ({"state": "from a later version", "class": ""}, "unknown", False),
    ],
)
def test_a_verdict_is_read(
    tmp_path: Path, verdict: dict[str, object], state: str, hangs: bool
) -> None:
    found = answer(ask(tmp_path / "0", printing(verdict)))
    assert (found.state, found.hangs) == (state, hangs)


@pytest.mark.parametrize(("code", "state"), [(4, "refused"), (5, "gone"), (1, "failed")])
def test_without_a_verdict_the_last_line_says_why(tmp_path: Path, code: int, state: str) -> None:
    text = f"import sys; print('grpo-doctor: no.\\n\\n', file=sys.stderr); sys.exit({code})"
    found = answer(ask(tmp_path / "0", text))
    assert (found.state, found.summary, found.hangs) == (state, "no.", False)


def test_names_from_the_job_cannot_steer_the_terminal(tmp_path: Path) -> None:
    found = answer(ask(tmp_path / "0", printing({"state": "stuck", "summary": "a\x1b[2J\nb"})))
    assert found.summary == "a [2J b"
    assert one_line("\x9b31m\u202eabc") == "31m abc"


def test_one_that_takes_too_long_is_ended_with_what_it_started(tmp_path: Path) -> None:
    code = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen(['sleep', '600']); print(child.pid, flush=True)\n"
        "time.sleep(600)"
    )
    inquiry = ask(tmp_path / "0", code, at_most_s=0.5)
    printed = tmp_path / "0.json"
    deadline = time.monotonic() + PATIENCE_S
    found = None
    while found is None or not printed.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.01)
        found = found or inquiry.poll()
    assert found.state == "failed"
    assert "more than" in found.summary
    child = int(printed.read_text())
    while Path(f"/proc/{child}/stat").exists() and "Z" not in status(child):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def status(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


def test_the_terminals_signals_are_for_the_job(tmp_path: Path) -> None:
    inquiry = ask(tmp_path / "0", "import time; time.sleep(600)")
    assert os.getpgid(inquiry._process.pid) != os.getpgrp()
    assert os.getsid(inquiry._process.pid) == inquiry._process.pid
    inquiry.cancel()
    assert inquiry._process.returncode == -signal.SIGKILL


def test_what_it_left_can_be_taken_away_and_is_the_users_alone(tmp_path: Path) -> None:
    inquiry = ask(tmp_path / "hangs" / "0", printing({"state": "slow", "class": "reward-busy"}))
    answer(inquiry)
    found = list((tmp_path / "hangs").iterdir())
    assert {path.name for path in found} == {"0", "0.json", "0.log"}
    assert all(path.stat().st_mode & 0o077 == 0 for path in found)
    inquiry.discard()
    assert list((tmp_path / "hangs").iterdir()) == []
