"""Printed fixes are put into a command line by what they print alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from grpo_doctor import knobs
from tests.frameworks.advice import __main__ as advice_main
from tests.frameworks.advice import pairs
from tests.frameworks.advice.applying import NotAFlagError, apply
from tests.frameworks.advice.cases import CASES, Case
from tests.frameworks.advice.errors import least_error, misses, summary_of
from tests.frameworks.advice.jobs import JobFailedError, Machine
from tests.frameworks.advice.pairs import Advice, NoAdviceError, Pair, advice_of, run_pair

COMMAND = ["swift", "rlhf", "--batch", "1", "--rewards", "a", "b", "--beta=0.1", "--quiet"]
REWARDS = Case("trl", "rewards", "GD034", next_step="at once.*async functions")


@pytest.mark.parametrize(
    ("spelling", "expected"),
    [
        ("--batch 8", ["--batch", "8", "--rewards", "a", "b", "--beta=0.1", "--quiet"]),
        ("--rewards c", ["--batch", "1", "--rewards", "c", "--beta=0.1", "--quiet"]),
        ("--beta 0", ["--batch", "1", "--rewards", "a", "b", "--beta", "0", "--quiet"]),
        ("--new x --batch 2",
         ["--batch", "2", "--rewards", "a", "b", "--beta=0.1", "--quiet", "--new", "x"]),
        ("(remove --quiet)", ["--batch", "1", "--rewards", "a", "b", "--beta=0.1"]),
    ],
)  # fmt: skip
def test_each_printed_option_takes_the_place_of_the_old_one(
    spelling: str, expected: list[str]
) -> None:
    assert apply(COMMAND, spelling) == ["swift", "rlhf", *expected]


@pytest.mark.parametrize(
    "spelling",
    ["set a.b to true (no flag known for trl)", "--x '{}' (in addition to its existing keys)"],
)
def test_what_is_no_option_is_not_guessed_at(spelling: str) -> None:
    with pytest.raises(NotAFlagError):
        apply(COMMAND, spelling)


@pytest.mark.parametrize(
    ("framework", "version"), [("trl", "1.16.0"), ("ms-swift", "4.6.0"), ("openrlhf", "0.11.2")]
)
@pytest.mark.parametrize("value", [True, False])
def test_what_every_framework_prints_for_a_switch_can_be_applied(
    framework: str, version: str, value: bool
) -> None:
    spelling = knobs.spell(framework, version, "train.gradient_checkpointing", value)
    assert spelling is not None
    command = apply(["train"], spelling)
    read = knobs.from_command(framework, version, command)
    applied = read.get("train.gradient_checkpointing", False)
    assert applied is value


def _document(**finding: Any) -> dict[str, Any]:
    entry = {"id": "GD034", "cause": "", "fixes": [], "next_steps": [], **finding}
    groups: dict[str, Any] = {name: [] for name in ("passed", "not_run", "not_applicable")}
    return {"findings": [entry], **groups}


def test_advice_is_taken_with_its_prediction_or_said_to_be_missing() -> None:
    predicted = {"low": -30.0, "mid": -20.0, "high": -10.0}
    text = "run a, b at once: one function with a pool of processes, or async functions"
    steps = [
        {"text": "look at it", "predicted": None, "risk": ""},
        {"text": text, "predicted": predicted, "risk": ""},
    ]
    assert advice_of(_document(next_steps=steps), REWARDS) == Advice(text, -30.0, -20.0, -10.0)
    with pytest.raises(NoAdviceError, match="nothing to apply"):
        advice_of(_document(next_steps=steps[:1]), REWARDS)
    silent = {**_document(), "findings": [], "passed": [{"id": "GD034", "note": "all at once"}]}
    with pytest.raises(NoAdviceError, match="passed: all at once"):
        advice_of(silent, REWARDS)


def test_both_frameworks_have_six_handicaps_two_of_them_unseen() -> None:
    for framework in ("trl", "swift"):
        own = [case for case in CASES if case.framework == framework]
        assert (len(own), sum(case.unseen for case in own)) == (6, 2)


PREDICTED = {"low": -30.0, "mid": -20.0, "high": -10.0}
BATCH = Case("trl", "batch", "GD037", printed="--batch 4")


def _pair(monkeypatch: pytest.MonkeyPatch, folder: Path, printed: str, fails: str = "") -> Pair:
    """A pair of jobs that take 2 s a step with a batch of 1, else 1 s; those of a batch fail."""

    def record(words: Sequence[str], _: object, folder: Path) -> Path:
        size = words[words.index("--batch") + 1]
        if size == fails:
            raise JobFailedError("out of memory")
        return folder / size

    fix = {"spelling": printed, "predicted": PREDICTED, "risk": ""}
    document = {
        **_document(id="GD037", fixes=[fix]),
        "run": {"framework_version": "1.16.0"}, "summary": {"step_time_s": 2.0},
    }  # fmt: skip
    monkeypatch.setattr(pairs, "record", record)
    monkeypatch.setattr(pairs, "command", lambda *_: ["train", "--batch", "1"])
    monkeypatch.setattr(pairs, "report", lambda _: document)
    monkeypatch.setattr(pairs, "step_s", lambda run: 2.0 if run.name == "1" else 1.0)
    machine = Machine(Path("python"), Path("model"), Path("data"))
    return run_pair(BATCH, machine, folder / "jobs", 1, BATCH.printed)


@pytest.mark.parametrize("printed", ["--batch 4", "--batch 8"])
def test_what_a_report_prints_is_applied_whatever_was_expected(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, printed: str
) -> None:
    pair = _pair(monkeypatch, tmp_path, printed)
    assert pair.advice == Advice(printed, -30.0, -20.0, -10.0)
    assert (pair.measured, pair.problem) == (-50.0, "")


@pytest.mark.parametrize("fails", ["1", "4"])
def test_a_job_that_fails_is_said_and_tried_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fails: str
) -> None:
    failed, succeeded = (_pair(monkeypatch, tmp_path, "--batch 4", size) for size in (fails, ""))
    assert "out of memory" in failed.problem
    file = tmp_path / "pairs.json"
    advice_main._keep(file, [failed, succeeded])
    assert advice_main._kept(file) == [succeeded]


def test_what_is_expected_of_each_handicap_can_be_applied() -> None:
    for case in CASES:
        if not case.next_step:
            assert apply(COMMAND, case.printed) != COMMAND


def _measured(seed: int, after_s: float, **more: Any) -> dict[str, Any]:
    advice = {"mid": -20.0, "low": -24.0, "high": -16.0}
    return {"seed": seed, "before_s": 1.0, "after_s": after_s, "advice": advice, **more}


def test_the_error_that_pairs_ask_for_is_chosen_on_some_and_judged_on_the_others() -> None:
    exact = [_measured(seed, 0.8) for seed in range(1, 9)]
    assert "odd seeds ask for 0.0%, with which 100% of the other 4" in summary_of(misses(exact))
    wild = [_measured(seed, 0.8 + 0.1 * (seed % 4 == 1)) for seed in range(1, 9)]
    assert least_error(misses(wild)) == pytest.approx(np.sqrt(10**2 - 4**2 + 2**2), abs=0.5)
    skipped = [_measured(1, 0.9, problem="no advice"), _measured(2, 0.9, advice=None)]
    assert misses(skipped) == []
    assert "no error can be chosen" in summary_of([])
