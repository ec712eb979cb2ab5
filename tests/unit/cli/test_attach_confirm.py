"""`attach --confirm`: what is undone, after asking, and what is said of it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable

import pytest

from grpo_doctor.cli import main
from grpo_doctor.hang.verdict import Undo
from grpo_doctor_probes.evidence import Job
from tests.unit.cli.attached import Captured, diagnosis, job


def test_ctrl_c_after_something_was_agreed_to(
    plays: Callable[..., None], capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    def carry_out(undo: Undo, job: Job) -> bool:
        raise KeyboardInterrupt

    plays(job(), verdict=diagnosis(undo=(Undo("continue", 4_701, "", "Continue?"),)))
    monkeypatch.setattr("grpo_doctor.hang.confirm.carry_out", carry_out)
    assert main(["attach", "--confirm", "--yes"]) == 130
    assert "may have been made" in capsys.readouterr().err


def carried_out(monkeypatch: pytest.MonkeyPatch, *, moved: bool) -> list[Undo]:
    """A list of what is undone from now on, instead of undoing it."""
    done: list[Undo] = []

    def carry_out(undo: Undo, job: Job) -> bool:
        done.append(undo)
        return moved

    monkeypatch.setattr("grpo_doctor.hang.confirm.carry_out", carry_out)
    return done


@pytest.mark.parametrize("moved", [True, False])
def test_undoing_goes_into_the_verdict(
    plays: Callable[..., None], capsys: Captured, monkeypatch: pytest.MonkeyPatch, moved: bool
) -> None:
    undo = Undo("continue", 4_701, "", "Continue rank 1 (SIGCONT to process 4701)?")
    plays(job(), verdict=diagnosis(undo=(undo,)))
    done = carried_out(monkeypatch, moved=moved)
    assert main(["attach", "--json", "--confirm", "--yes"]) == 3
    assert done == [undo]
    verdict = json.loads(capsys.readouterr().out)["verdict"]
    assert ("confirmed: the job resumed" in verdict["evidence"][0]["text"]) == moved
    assert (verdict["confidence"] >= 0.99) == moved


@pytest.mark.parametrize(("answer", "does"), [("y\n", 1), ("\n", 0), ("n\n", 0), ("", 0)])
def test_it_asks_first(
    plays: Callable[..., None], monkeypatch: pytest.MonkeyPatch, answer: str, does: int
) -> None:
    own_end, theirs = os.openpty()
    plays(job(), verdict=diagnosis(undo=(Undo("continue", 4_701, "", "Continue?"),)))
    done = carried_out(monkeypatch, moved=True)
    with open(theirs, encoding="utf-8") as terminal:  # noqa: PTH123 - a descriptor
        monkeypatch.setattr(sys, "stdin", terminal)
        os.write(own_end, answer.encode() or b"\x04")  # Ctrl-D
        assert main(["attach", "--confirm"]) == 3
    os.close(own_end)
    assert len(done) == does


@pytest.mark.parametrize("moved", [True, False])
def test_a_job_that_moves_again_need_not_be_kept(
    plays: Callable[..., None], capsys: Captured, monkeypatch: pytest.MonkeyPatch, moved: bool
) -> None:
    plays(job(), verdict=diagnosis(undo=(Undo("continue", 4_701, "", "Continue?"),)))
    carried_out(monkeypatch, moved=moved)
    main(["attach", "--confirm", "--yes"])
    assert ("to save this evidence" in capsys.readouterr().err) != moved


def test_nothing_to_undo_is_said(plays: Callable[..., None], capsys: Captured) -> None:
    plays(job())
    assert main(["attach", "--confirm", "--yes"]) == 3
    assert "no safe change is known" in capsys.readouterr().err
