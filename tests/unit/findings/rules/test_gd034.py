from __future__ import annotations

from typing import Any

import pytest

from grpo_doctor.findings.rule import NotApplicable, Passed
from grpo_doctor.findings.rules import gd034_serial_rewards as rule
from tests.build import TraceBuilder
from tests.unit.findings.example_runs import HEALTHY, SETTINGS, run
from tests.unit.findings.recorded import count, found, inside, judged, number


def functions(*seconds: float, waited: float | None = None, **facts: Any) -> TraceBuilder:
    whole = sum(seconds) if waited is None else waited
    build = run({**HEALTHY, "reward": whole}, **facts)
    begin = 0.0
    for place, own in enumerate(seconds):
        seen = own * whole / sum(seconds)
        inside(build, f"reward/f{place}", seen, begin=begin)
        count(build, f"reward/f{place}_s", own)
        begin += seen
    return build


def sick() -> TraceBuilder:
    return functions(1.0, 1.0, 0.8)


def well() -> TraceBuilder:
    return functions(1.0, 1.0, 0.8, waited=1.05)


def test_the_sum_is_waited_where_the_slowest_would_do() -> None:
    finding = found(rule, sick())
    assert number(finding, "waited for all") == pytest.approx(2.8, rel=0.02)
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
    fix = found(rule, build).fixes[0]
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
    finding = found(rule, build)
    assert finding.headline == "Completions are scored one at a time"
    assert number(finding, "calls of judge") == 16


def test_busy_cores_get_no_prediction() -> None:
    build = sick()
    build.series("host.cpu", "%", [0.0, 100.0], [97.0, 97.0])
    fix = found(rule, build).fixes[0]
    assert fix.predicted is None
    assert "97% busy" in fix.risk


def test_milliseconds_of_a_short_step_are_not_worth_a_process() -> None:
    build = run({"rollout": 0.04, "train": 0.04, "reward": 0.04}, idle=0.001)
    inside(build, "reward/f0", 0.02)
    inside(build, "reward/f1", 0.02, begin=0.02)
    answer = judged(rule, build)
    assert isinstance(answer, Passed)
    assert "could save 16" in answer.note
