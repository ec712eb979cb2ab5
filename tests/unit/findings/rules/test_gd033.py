from __future__ import annotations

import pytest

from grpo_doctor.findings.rule import Finding, NotApplicable, Passed
from grpo_doctor.findings.rules import gd024_collector_pauses
from grpo_doctor.findings.rules import gd033_slow_reward as rule
from tests.build import TraceBuilder
from tests.unit.findings.example_runs import HEALTHY, SETTINGS, run
from tests.unit.findings.recorded import count, finding_by, inside, judged, number
from tests.unit.findings.rules.saying import counted
from tests.unit.findings.rules.test_gd036 import LIMITED, calls


def scoring(judge_s: float, format_s: float = 0.05) -> TraceBuilder:
    build = run({**HEALTHY, "reward": judge_s + format_s + 0.05})
    inside(build, "reward/judge", judge_s)
    return inside(build, "reward/format", format_s, begin=judge_s)


def sick() -> TraceBuilder:
    return scoring(2.0)


def well() -> TraceBuilder:
    return scoring(0.1)


def test_the_function_that_dominates_is_named_with_its_bound() -> None:
    finding = finding_by(rule, sick())
    assert "judge" in finding.headline
    assert finding.cost == pytest.approx(2.05 / 11.75, rel=0.02)
    assert number(finding, "judge per step") == pytest.approx(2.02, rel=0.02)
    assert finding.severity == "medium"
    assert "at all the step would be 17% shorter" in finding.fixes[0].risk


def test_without_a_dominating_function_none_is_named() -> None:
    build = scoring(0.5, 0.5)  # of twice as much work each, at once
    count(build, "reward/judge_s", 1.0)
    finding = finding_by(rule, count(build, "reward/format_s", 1.0))
    assert finding.headline == ""
    assert "no single function" in finding.cause


def test_functions_in_turn_are_told_by_the_rule_that_runs_them_at_once() -> None:
    answer = judged(rule, scoring(1.0, 1.0))
    assert isinstance(answer, Passed)
    assert "see GD034" in answer.note


def test_calls_that_end_at_a_limit_are_told_by_the_rule_about_limits() -> None:
    answer = judged(rule, calls(LIMITED))
    assert isinstance(answer, Passed)
    assert "see GD036" in answer.note


def test_a_reward_without_named_functions_is_still_a_share() -> None:
    finding = finding_by(rule, run({**HEALTHY, "reward": 2.0}))
    assert finding.confidence < 0.8
    assert len(finding.evidence) == 2


def test_one_slow_rank_does_not_speak_for_all() -> None:
    assert isinstance(judged(rule, run(slow={1: {"reward": 5.0}})), Passed)
    assert isinstance(judged(rule, run(ranks=2, slow={1: {"reward": 5.0}})), Passed)


def test_decoding_and_gathering_are_no_function() -> None:
    build = run({**HEALTHY, "reward": 2.0})
    assert isinstance(judged(rule, inside(build, "reward/judge", 0.05)), Passed)


def test_without_rewards_nothing_is_said() -> None:
    phases = {name: s for name, s in HEALTHY.items() if name != "reward"}
    assert isinstance(judged(rule, run(phases)), NotApplicable)


def test_the_trainers_own_functions_take_more_processes() -> None:
    build = run(
        {**HEALTHY, "reward": 2.0},
        knobs={**SETTINGS, "reward.num_workers": 2},
        framework="bundled",
        framework_version="0.1.0",
    )
    inside(build, "reward/accuracy", 1.9)
    count(build, "reward/accuracy_s", 1.9)
    fix = finding_by(rule, build).fixes[0]
    assert (fix.knob, fix.after) == ("reward.num_workers", 4)
    assert fix.spelling == "--reward_num_workers 4"


def test_verl_has_workers_for_any_function() -> None:
    build = run(
        {**HEALTHY, "reward": 2.0},
        knobs={**SETTINGS, "reward.num_workers": 1},
        framework="verl",
        framework_version="0.9.1",
    )
    fix = finding_by(rule, inside(build, "reward/judge", 1.9)).fixes[0]
    assert fix.spelling == "reward.num_workers=4"


def test_milliseconds_of_a_short_step_are_not_worth_a_profile() -> None:
    answer = judged(rule, run({"rollout": 0.04, "train": 0.04, "reward": 0.02}, idle=0.001))
    assert isinstance(answer, Passed)
    assert "of the step, 0.02 s," in answer.note


def test_collections_beside_a_slow_reward_leave_it_slow() -> None:
    build = counted(scoring(3.0), {"gc/seconds": 0.9, "gc/longest_s": 0.3})
    assert isinstance(judged(gd024_collector_pauses, build), Finding)
    assert "judge" in finding_by(rule, build).headline


@pytest.mark.parametrize(("workers", "more"), [(3, True), (4, False), ("auto", False)])
def test_four_processes_are_enough(workers: object, more: bool) -> None:
    build = run(
        {**HEALTHY, "reward": 2.0},
        knobs={**SETTINGS, "reward.num_workers": workers},
        framework="verl",
        framework_version="0.9.1",
    )
    fixes = finding_by(rule, inside(build, "reward/judge", 1.9)).fixes
    assert ("reward.num_workers" in [fix.knob for fix in fixes]) is more
