from __future__ import annotations

from typing import Any

import pytest

from grpo_doctor.findings.rule import Passed
from grpo_doctor.findings.rules import gd036_reward_timeouts as rule
from tests.build import TraceBuilder
from tests.unit.findings.example_runs import run
from tests.unit.findings.recorded import count, finding_by, inside, judged, number

BUNDLED: dict[str, Any] = {"framework": "bundled", "framework_version": "0.1.0"}


def calls(seconds: list[float], limit: float = 60.0) -> TraceBuilder:
    build = TraceBuilder(knobs={"reward.timeout_s": limit}, **BUNDLED)
    now = 0.0
    for step, reward in enumerate(seconds):
        build.step(0, step, now, {"rollout": 3.0, "reward": reward + 0.01, "train": 2.0})
        now += reward + 5.01
    inside(build, "reward/judge", lambda _, step: seconds[step])
    return count(build, "reward/judge_s", lambda _, step: seconds[step])


LIMITED = [0.2, 0.3, 5.0, 0.2, 0.25, 5.02, 0.3, 0.2, 5.01, 0.2]


def sick() -> TraceBuilder:
    return calls(LIMITED)


def well() -> TraceBuilder:
    return calls([0.2, 0.3, 0.9, 0.2, 0.25, 0.4, 0.3, 0.2, 0.6, 0.2])


def test_calls_that_end_at_one_length_ran_into_a_limit() -> None:
    finding = finding_by(rule, sick())
    assert number(finding, "calls that end") == 3
    assert number(finding, "longest call") == pytest.approx(5.02)
    excess = sum(LIMITED[i] for i in (2, 5, 8)) - 3 * 0.275
    step_s = 5.01 + sum(LIMITED) / 10
    assert finding.cost == pytest.approx(excess / 10 / step_s, rel=0.01)
    predicted = finding.fixes[0].predicted
    assert predicted is not None
    assert predicted.mid == pytest.approx(-100 * finding.cost, abs=1.0)


def test_calls_of_one_usual_length_are_no_limit() -> None:
    assert isinstance(judged(rule, calls([2.0] * 10)), Passed)


def test_a_rank_that_is_always_slow_has_no_limit() -> None:
    build = run(ranks=2, slow={1: {"reward": 2.0}})
    inside(build, "reward/judge", lambda rank, _: 2.1 if rank else 0.1)
    assert isinstance(judged(rule, build), Passed)


def test_calls_of_every_length_up_to_the_longest_are_no_limit() -> None:
    seconds = [0.2] * 12 + [2.7, 3.1, 3.9, 4.4, 5.0, 5.01, 5.02]
    assert isinstance(judged(rule, calls(seconds)), Passed)


def test_two_long_calls_are_no_limit() -> None:
    assert isinstance(judged(rule, calls([0.2] * 8 + [5.0, 5.0])), Passed)


@pytest.mark.parametrize(("limit", "severity"), [(9.0, "low"), (6.0, "medium")])
def test_a_call_near_the_trainers_limit_may_end_the_run(limit: float, severity: str) -> None:
    finding = finding_by(rule, calls([0.2, 0.3, 5.0, 0.2, 0.3, 0.2], limit))
    assert (finding.severity, finding.cost) == (severity, 0.0)
    assert finding.fixes[0].spelling == f"--reward_timeout {4 * limit:.0f}"


def test_timeouts_that_are_counted_are_shown() -> None:
    build = count(sick(), "reward/timeouts", lambda _, step: float(step in (2, 5, 8)))
    assert number(finding_by(rule, build), "timeouts") == 3


@pytest.mark.parametrize(
    ("limit", "severity"), [(6.25, "medium"), (6.26, "low"), (10.0, "low"), (10.1, None)]
)
def test_a_call_is_near_a_limit_from_half_of_it_on(limit: float, severity: str | None) -> None:
    build = calls([0.2, 0.3, 5.0, 0.2, 0.3, 0.2], limit)
    if severity is None:
        assert isinstance(judged(rule, build), Passed)
    else:
        assert finding_by(rule, build).severity == severity


@pytest.mark.parametrize(
    ("seconds", "limited"),
    [
        ([0.2] * 7 + [5.0, 5.0, 4.85], True),  # within three percent of the longest
        ([0.2] * 7 + [5.0, 5.0, 4.84], False),
        ([2.5] * 7 + [5.0] * 3, True),  # the usual call takes half
        ([2.51] * 7 + [5.0] * 3, False),
        # Of the calls that take longer than half, three quarters end at the limit.
        ([0.2] * 9 + [5.0] * 3 + [4.0], True),
        ([0.2] * 9 + [5.0] * 3 + [4.0, 3.0], False),
        ([0.2] * 9 + [5.0] * 3 + [2.5] * 2, True),
        ([0.05] * 7 + [0.5] * 3, True),
        ([0.05] * 7 + [0.49] * 3, False),
    ],
)
def test_a_limit_is_a_length_at_which_long_calls_end(seconds: list[float], limited: bool) -> None:
    if limited:
        assert number(finding_by(rule, calls(seconds)), "calls that end at the same length") == 3
    else:
        assert isinstance(judged(rule, calls(seconds)), Passed)


def test_calls_that_end_at_a_limit_have_to_cost_something() -> None:
    rare = [0.2] * 60 + [0.6] * 3  # at a limit, but a thousandth of the run
    assert isinstance(judged(rule, calls(rare)), Passed)
