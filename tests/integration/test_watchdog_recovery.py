"""A job that hangs, moves again and hangs again, or moves while it is inspected."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest

from tests.integration.test_watchdog import read_until, run_facts
from tests.integration.test_watchdog_foreign import (
    PATIENCE_S,
    foreign,
    go,
    rank,
    wait_for,
)

pytest.importorskip("torch", reason="needs the trainer extra")
pytestmark = [pytest.mark.slow, pytest.mark.faults, pytest.mark.timeout(600)]
AGAIN_S = 30.0  # as in the job


def test_a_second_hang_after_a_recovery_is_told_too(tmp_path: Path) -> None:
    with foreign(tmp_path, "stop", "--hang-after", "4") as process:
        go(tmp_path)
        for number in range(2):
            report = read_until(process, "attach --replay")
            assert "Rank 1 is stopped" in report
            assert (tmp_path / f"run/hangs/{number}").is_dir()
            os.kill(rank(tmp_path, 1), signal.SIGCONT)
            assert "the job moves again" in read_until(process, "the job moves again")
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE_S)
    hangs = run_facts(tmp_path)["hangs"]
    assert [hang["class"] for hang in hangs] == ["rank-stopped"] * 2
    assert (hangs[1]["at_ns"] - hangs[0]["at_ns"]) / 1e9 > AGAIN_S


def test_a_rank_that_goes_on_while_it_is_looked_at_is_not_left_called_stuck(tmp_path: Path) -> None:
    with foreign(tmp_path, "stop_once", "--hang-after", "4") as process:
        lines: list[str] = []
        listener = threading.Thread(target=lambda: lines.extend(process.stderr or ()), daemon=True)
        listener.start()
        go(tmp_path)
        look = tmp_path / "run/hangs/0"
        wait_for(look.exists)
        os.kill(rank(tmp_path, 1), signal.SIGCONT)
        # Either its verdict came too late to be told, or what follows it is told as well.
        wait_for(lambda: not look.exists() or "the job moves again" in "".join(lines))
        process.send_signal(signal.SIGINT)
        process.wait(PATIENCE_S)
        listener.join(PATIENCE_S)
    hangs = run_facts(tmp_path).get("hangs", [])
    assert "".join(lines).count("the job moves again") == len(hangs), lines
    assert "internal error" not in "".join(lines)
