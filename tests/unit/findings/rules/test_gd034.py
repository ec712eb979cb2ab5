from __future__ import annotations

from typing import Any

import pytest

from grpo_doctor.findings.rule import Finding, NotApplicable, Passed
from grpo_doctor.findings.rules import gd034_serial_rewards as rule
from tests.build import TraceBuilder
from tests.unit.findings.example_runs import HEALTHY, SETTINGS, run
from tests.unit.findings.recorded import count, finding_by, inside, judged, number


def functions(*seconds: float, waited: float | None = None, **facts: Any) -> TraceBuilder:
    total_s = sum(seconds) if waited is None else waited
    build = run({**HEALTHY, "reward": total_s}, **facts)
    begin = 0.0
    for index, own in enumerate(seconds):
        waited_s = own * total_s / sum(seconds)
        inside(build, f"reward/f{index}", waited_s, begin=begin)
        count(build, f"reward/f{index}_s", own)
        begin += waited_s
    return build


def sick() -> TraceBuilder:
    return functions(1.0, 1.0, 0.8)


def well() -> TraceBuilder:
    return functions(1.0, 1.0, 0.8, waited=1.05)


def test_the_sum_is_waited_where_the_slowest_would_do() -> None:
    finding = finding_by(rule, sick())
    assert number(finding, "wait time for all") == pytest.approx(2.8, rel=0.02)
    assert number(finding, "the slowest") == pytest.approx(1.0)
    assert finding.cost == pytest.approx(1.8 / 12.6, rel=0.03)
    fix = finding.fixes[0]
    assert fix.knob is None
    assert fix.safety == "needs-code"
    assert fix.predicted is not None
    assert fix.predicted.mid == pytest.approx(-100 * finding.cost, abs=0.5)


def test_the_bundled_trainer_is_given_its_flag() -> None:
    build = functions(
        1.0,
        1.0,
        knobs={**SETTINGS, "reward.num_workers": 1},
        framework="bundled",
        framework_version="0.1.0",
    )
    fix = finding_by(rule, build).fixes[0]
    assert (fix.before, fix.after) == (1, 2)
    assert fix.spelling == "--reward_num_workers 2"


def test_what_is_not_the_functions_is_not_saved() -> None:
    build = run({**HEALTHY, "reward": 2.0})
    inside(build, "reward/f0", 0.1)
    inside(build, "reward/f1", 0.1, begin=0.1)
    assert isinstance(judged(rule, build), Passed)


def test_functions_that_run_at_once_already_pass() -> None:
    assert isinstance(judged(rule, well()), Passed)


def test_one_long_function_has_nothing_to_run_beside() -> None:
    assert isinstance(judged(rule, functions(3.0)), NotApplicable)
    assert isinstance(judged(rule, functions(3.0, 0.01)), NotApplicable)


def test_completions_that_are_scored_one_at_a_time() -> None:
    build = run({**HEALTHY, "reward": 2.0})
    inside(build, "reward/judge", 1.9, times=16)
    finding = finding_by(rule, build)
    assert finding.headline == "Completions are scored one at a time"
    assert number(finding, "calls of judge") == 16


def test_busy_cores_get_no_prediction() -> None:
    build = sick()
    build.series("host.cpu", "%", [0.0, 100.0], [97.0, 97.0])
    fix = finding_by(rule, build).fixes[0]
    assert fix.predicted is None
    assert "97% busy" in fix.risk


def test_milliseconds_of_a_short_step_are_not_worth_a_process() -> None:
    build = run({"rollout": 0.04, "train": 0.04, "reward": 0.04}, idle=0.001)
    inside(build, "reward/f0", 0.02)
    inside(build, "reward/f1", 0.02, begin=0.02)
    answer = judged(rule, build)
    assert isinstance(answer, Passed)
    assert "could save 16" in answer.note


def in_calls(times: int, judge_s: float = 1.9, other_s: float = 0.0, **facts: Any) -> TraceBuilder:
    """A judge that is called so many times per step, and another function once."""
    build = run({**HEALTHY, "reward": judge_s + other_s + 0.01}, **facts)
    inside(build, "reward/judge", judge_s, times=times)
    return inside(build, "reward/other", other_s, begin=judge_s)


@pytest.mark.parametrize("workers", [None, 1])
def test_eight_calls_are_calls_of_single_completions(workers: int | None) -> None:
    knobs = {**SETTINGS, **({} if workers is None else {"reward.num_workers": workers})}
    framework = "unknown" if workers is None else "bundled"
    finding = finding_by(rule, in_calls(8, knobs=knobs, framework=framework))
    assert finding.headline == "Completions are scored one at a time"
    assert "judge is called 8 times per step" in finding.cause
    assert number(finding, "calls of judge") == 8
    assert number(finding, "the slowest, or its share of a pool") == pytest.approx(
        1.9 / 4, rel=0.02
    )
    assert "at once in judge: a pool of 4 processes" in finding.fixes[0].spelling
    assert isinstance(judged(rule, in_calls(7, knobs=knobs, framework=framework)), NotApplicable)


@pytest.mark.parametrize(
    ("times", "other_s", "at_once_s", "processes"),
    [
        (8, 0.6, 0.6, 4),  # the judge's calls are spread, the other function is not
        (7, 0.6, 1.2, 2),
        (8, 0.01, 0.3, 4),
    ],
)
def test_only_single_calls_are_spread_over_a_pool(
    times: int, other_s: float, at_once_s: float, processes: int
) -> None:
    finding = finding_by(rule, in_calls(times, 1.2, other_s))
    assert number(finding, "the slowest, or its share") == pytest.approx(at_once_s, rel=0.02)
    predicted = finding.fixes[0].predicted
    assert predicted is not None
    assert f"({processes} processes)" in predicted.basis


@pytest.mark.parametrize(("workers", "divisible"), [(0, True), (1, True), (2, False)])
def test_one_function_of_the_trainer_is_shared_by_more_processes_than_one(
    workers: int, divisible: bool
) -> None:
    build = run(
        {**HEALTHY, "reward": 2.0},
        knobs={**SETTINGS, "reward.num_workers": workers},
        framework="bundled",
        framework_version="0.1.0",
    )
    answer = judged(rule, inside(build, "reward/accuracy", 1.9))
    assert isinstance(answer, Finding if divisible else NotApplicable)


@pytest.mark.parametrize(("cpu", "predicted"), [(85.0, True), (85.1, False)])
def test_cores_are_busy_above_a_limit_and_what_could_run_at_once_stays_the_same(
    cpu: float, predicted: bool
) -> None:
    build = sick()
    build.series("host.cpu", "%", [0.0, 100.0], [cpu, cpu])
    assert (finding_by(rule, build).fixes[0].predicted is not None) is predicted
