"""The bench's own arithmetic: what counts as right, what is drawn, what the page says."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from tests.faults import cases, first_pass
from tests.faults.baselines import Other
from tests.faults.cases import Options, draw, run_case
from tests.faults.goals import missed
from tests.faults.healthy import Calm
from tests.faults.jobs import ForkServer
from tests.faults.registry import FAMILIES, Fault, Outside, Truth, load
from tests.faults.results import Results
from tests.faults.score import ROUNDS, Answer, Outcome, judge, ninth_decile
from tests.faults.table import page

FAULT = Fault("stopped", "control", Truth(("rank-stopped",)))
RIGHT = Answer(3, 2.0, "stuck", "rank-stopped", (2,), 0.96, "Rank 2 is stopped.", 1.5)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (RIGHT, (True, True, True)),
        (replace(RIGHT, state="slow"), (False, True, True)),
        (replace(RIGHT, culprits=(1,)), (True, False, True)),
        (replace(RIGHT, culprits=(1, 2)), (True, False, True)),
        (replace(RIGHT, culprits=()), (True, False, True)),
        (replace(RIGHT, cause="unknown"), (True, True, False)),
        (Answer(2, 1.0, error="no answer"), (False, False, False)),
    ],
)
def test_every_part_of_a_verdict_is_held_to_the_truth(
    answer: Answer, expected: tuple[bool, bool, bool]
) -> None:
    assert judge(FAULT, 2, answer) == expected


def test_of_two_guilty_ranks_one_is_enough() -> None:
    pair = replace(FAULT, truth=replace(FAULT.truth, guilty=lambda c, _w: frozenset({c, c + 1})))
    assert judge(pair, 2, replace(RIGHT, culprits=(3,)))[1]
    assert not judge(pair, 2, replace(RIGHT, culprits=(3, 1)))[1]


def test_a_draw_is_repeatable_and_depends_on_the_seed() -> None:
    assert draw(FAULT, 1) == draw(FAULT, 1)
    assert len({draw(FAULT, seed).culprit for seed in range(20)}) == 4
    assert all(6 <= draw(FAULT, seed).age_s <= 10 for seed in range(20))


def test_every_family_has_faults_and_every_fault_a_class_of_the_catalogue() -> None:
    from grpo_doctor.hang.catalogue import BY_NAME

    faults = load().values()
    controls = {"unforeseen_calm", "unforeseen_odd", "held_out_calm", "held_out_patience"}
    assert {fault.family for fault in faults} == set(FAMILIES) - controls
    assert {name for fault in faults for name in fault.truth.classes} <= set(BY_NAME)
    assert sum(fault.family != "acceptance" for fault in faults) >= 36


def outcome(answer: Answer) -> Outcome:
    detected, culprit, cause = judge(FAULT, 2, answer)
    return Outcome(
        "stopped", "control", ("rank-stopped",), 4, 2, "reward", answer, detected, culprit, cause,
        Other("no majority"), False, Other("crash: KeyError"), False,
    )  # fmt: skip


def test_the_page_has_the_shares_the_baselines_and_the_alarms() -> None:
    wrong = outcome(replace(RIGHT, culprits=(0,), confidence=0.6))
    calm = Calm("healthy", 2, (replace(RIGHT, state="healthy"), RIGHT))
    text = page(Results((outcome(RIGHT), wrong), (calm,)), "python -m tests.faults")
    assert "| culprit right | 50% |" in text
    assert "| `stuck` or `dead` said of a healthy job | 1 of 2 |" in text
    assert "ends with an exception in 100%" in text
    assert "| 0.50 to 0.70 | 1 | 60% | 0% |" in text


def test_foreseen_and_unforeseen_faults_have_columns_of_their_own() -> None:
    missed_one = replace(outcome(replace(RIGHT, state="slow")), family="unforeseen_host")
    text = page(Results((outcome(RIGHT), missed_one), ()), "python -m tests.faults")
    first = [outcome.detected for outcome in first_pass.outcomes("unforeseen")]
    recorded = f"{100 * sum(first) / len(first):.0f}%"
    assert "|  | all | foreseen | unforeseen, first pass | unforeseen, now | held out," in text
    assert f"| detected | 50% | 100% | {recorded} | 0% |" in text


@pytest.mark.parametrize("of_round", ROUNDS)
def test_a_first_pass_is_of_faults_that_there_are(of_round: str) -> None:
    names = {fault.name for fault in load().values() if fault.family.startswith(of_round)}
    assert {outcome.name for outcome in first_pass.outcomes(of_round)} <= names


def test_a_goal_that_is_missed_is_named() -> None:
    good = Results((outcome(RIGHT),), (Calm("healthy", 2, (replace(RIGHT, state="slow"),)),))
    assert missed(good) == []
    bad = Results((outcome(replace(RIGHT, cause="unknown")),), (Calm("healthy", 2, (RIGHT,)),))
    assert [text.partition(" ")[0] for text in missed(bad)] == ["class", "1"]


def test_nine_of_ten_values_are_within_the_ninth_decile() -> None:
    assert ninth_decile(range(1, 11)) == 9
    assert ninth_decile([3.0]) == 3.0


@pytest.mark.parametrize(
    ("failures", "late", "expected"),
    [
        (0, False, (False, "")),
        (1, False, (False, "no effect")),
        (2, False, (True, "no effect")),
        (1, True, (True, "")),
    ],
)
def test_what_did_not_take_effect_is_injected_once_more_in_time(
    monkeypatch: pytest.MonkeyPatch, failures: int, late: bool, expected: tuple[bool, str]
) -> None:
    failing = [*[True] * failures, False]

    def once(outcome: Outcome, *_: object) -> Outcome:
        if late:
            clock.append(2.0)
        failed = failing.pop(0)
        return replace(outcome, failed=failed, skipped="no effect" if failed else "")

    clock = [0.0]
    monkeypatch.setattr(cases, "_once", once)
    monkeypatch.setattr(time, "monotonic", lambda: clock[-1])
    outcome = run_case(cast("ForkServer", None), FAULT, options=replace(Options(), until=1.0))
    assert (outcome.failed, outcome.retried) == expected


@pytest.mark.parametrize(
    "error", [ProcessLookupError(3, "No such process"), subprocess.CalledProcessError(2, ["ip"])]
)
def test_a_fault_that_the_machine_refuses_is_injected_once_more_and_the_bench_goes_on(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    injected = []

    def refused(_outside: Outside) -> None:
        injected.append(1)
        raise error

    @contextlib.contextmanager
    def healthy(*_spec: object) -> Iterator[SimpleNamespace]:
        yield SimpleNamespace(pids={0: 1}, folder=Path("unused"), await_healthy=lambda: None)

    monkeypatch.setattr(cases, "started", healthy)
    monkeypatch.setattr(cases, "wait_for", lambda *_: None)
    outcome = run_case(cast("ForkServer", None), replace(FAULT, outside=refused))
    assert outcome.failed
    assert repr(error) in outcome.skipped
    assert len(injected) == 2
