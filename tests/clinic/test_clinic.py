from __future__ import annotations

import json
import sys
from pathlib import Path
from unittest import mock

import pytest

from tests.clinic import __main__ as clinic
from tests.clinic import causes
from tests.clinic.agents import AGENTS, Answer
from tests.clinic.opened import opened
from tests.clinic.runs import sick_runs
from tests.clinic.score import right


def test_forty_runs_have_a_cause_of_their_menu_and_every_cause_of_a_menu_but_few_is_asked() -> None:
    runs = sick_runs().values()
    kinds = [run.kind for run in runs]
    counts = {kind: kinds.count(kind) for kind in kinds}
    assert counts == {"slow": 20, "stuck": 10, "not learning": 6, "not fitting": 4}
    for run in runs:
        assert run.causes, run.name
        assert run.causes <= causes.MENU[run.kind].keys(), run.name
        assert run.proof, run.name
    asked = frozenset().union(*(run.causes for run in runs))
    assert causes.SLOW.keys() | causes.UNLEARNING.keys() <= asked


def test_what_an_agent_is_told_says_no_truth(tmp_path: Path) -> None:
    with opened("unfit-01", tmp_path / "run") as run:
        told = (run.folder / "TASK.md").read_text() + run.launch.read_text()
    assert sick_runs()["unfit-01"].proof not in told
    assert "Do not start it" in told
    assert all(f"`{key}`" in told for key in causes.TOO_LARGE)


@pytest.mark.parametrize("name", [name for name in sick_runs() if name.startswith("unfit")])
def test_check_names_the_buffer_that_is_too_large(name: str, tmp_path: Path) -> None:
    with opened(name, tmp_path / "run") as run:
        answer = AGENTS["commands"](run)
    assert right(name, answer), answer


def test_a_stuck_run_wants_a_guilty_rank_and_no_other() -> None:
    run = sick_runs()["stuck-01"]
    cause, (rank, *_) = min(run.causes), sorted(run.guilty)
    assert right(run.name, Answer(cause, (rank,)))
    assert not right(run.name, Answer(cause))
    assert not right(run.name, Answer(cause, (rank, rank + 1)))
    assert not right(run.name, Answer("unknown", (rank,)))


def test_answers_of_others_are_scored_and_a_line_that_is_none_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    truth = sick_runs()["slow-01"]
    file = tmp_path / "answers.jsonl"
    lines = [{"run": "slow-01", "cause": min(truth.causes)}, {"run": "nobody", "cause": "reward"}]
    file.write_text("\n".join(map(json.dumps, lines)))
    with mock.patch.object(sys, "argv", ["clinic", "score", str(file)]):
        assert clinic.main() == 1
    printed = capsys.readouterr().out
    assert f"right  slow-01: {min(truth.causes)}" in printed
    assert f"{file}:2: no answer to a run of the list" in printed
    assert "| answers | 1 of 1 | 0 of 0 |" in printed
