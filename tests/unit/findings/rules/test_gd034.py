from __future__ import annotations

from typing import Any

import pytest

from grpo_doctor.findings.rule import NotApplicable
from grpo_doctor.findings.rules import gd034_serial_rewards as rule
from tests.build import TraceBuilder
from tests.unit.findings.example_runs import HEALTHY, SETTINGS, run
from tests.unit.findings.recorded import count, finding_by, inside, judged, number
from tests.unit.findings.rules.saying import named, rows


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


def what_is_not_the_functions_is_not_saved() -> TraceBuilder:
    build = run({**HEALTHY, "reward": 2.0})
    inside(build, "reward/f0", 0.1)
    inside(build, "reward/f1", 0.1, begin=0.1)
    return build


def completions_that_are_scored_one_at_a_time() -> TraceBuilder:
    build = run({**HEALTHY, "reward": 2.0})
    inside(build, "reward/judge", 1.9, times=16)
    return build


def busy_cores_get_no_prediction() -> TraceBuilder:
    build = sick()
    build.series("host.cpu", "%", [0.0, 100.0], [97.0, 97.0])
    return build


def milliseconds_of_a_short_step_are_not_worth_a() -> TraceBuilder:
    build = run({"rollout": 0.04, "train": 0.04, "reward": 0.04}, idle=0.001)
    inside(build, "reward/f0", 0.02)
    inside(build, "reward/f1", 0.02, begin=0.02)
    return build


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


def cores_are_busy_above_a_limit_and_what_could(cpu: float) -> TraceBuilder:
    build = sick()
    build.series("host.cpu", "%", [0.0, 100.0], [cpu, cpu])
    return build


RUNS = {
    "the bundled trainer is given its flag": lambda: functions(
        1.0,
        1.0,
        knobs={**SETTINGS, "reward.num_workers": 1},
        framework="bundled",
        framework_version="0.1.0",
    ),
    "one long function has nothing to run beside 1": lambda: functions(3.0),
    "one long function has nothing to run beside 2": lambda: functions(3.0, 0.01),
    **rows(
        "only single calls are spread over a pool",
        lambda times, other_s: in_calls(times, 1.2, other_s),
        (8, 0.6),
        (7, 0.6),
        (8, 0.01),
    ),
    **rows(
        "one function of the trainer is shared by more processes",
        lambda workers: inside(
            run(
                {**HEALTHY, "reward": 2.0},
                knobs={**SETTINGS, "reward.num_workers": workers},
                framework="bundled",
                framework_version="0.1.0",
            ),
            "reward/accuracy",
            1.9,
        ),
        0,
        1,
        2,
    ),
    **named(cores_are_busy_above_a_limit_and_what_could, 85.0, 85.1),
}
