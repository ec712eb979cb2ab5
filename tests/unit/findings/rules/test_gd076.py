from __future__ import annotations

from typing import Any

import pytest

from tests.build import TraceBuilder
from tests.unit.findings.rules.saying import (
    HEALTHY,
    counted,
    finding_in,
    mid,
    missing,
    not_applicable,
    passed,
    run,
    value,
    with_knobs,
)

RULE = "GD076"
OFF = with_knobs(train__share_prompts=False, rollout__num_generations=8, train__micro_batch=16)


def tokens(
    prompts: float, completions: float, knobs: dict[str, object] = OFF, **facts: Any
) -> TraceBuilder:
    facts = {"framework": "bundled", "framework_version": "0.1.0", **facts}
    counts = {"rollout/prompt_tokens": prompts, "rollout/tokens": completions}
    return counted(run(knobs=knobs, **facts), counts)


def sick() -> TraceBuilder:
    return tokens(512.0, 64.0)


def well() -> TraceBuilder:
    return tokens(20.0, 512.0)


def test_the_repeated_tokens_are_those_of_all_but_one_of_a_group() -> None:
    finding = finding_in(sick(), RULE)
    repeated = 512 * 7 / 8 / 576
    assert value(finding, "repeated") == pytest.approx(100 * repeated)
    assert finding.cost == pytest.approx(repeated * 4.04 / (9.8 * 1.01 + 0.05), rel=0.02)
    assert finding.phases == ("train", "logprob")
    fix = finding.fixes[0]
    assert fix.spelling == "--share_prompts true"
    assert mid(fix) < -10


def test_short_prompts_are_not_worth_it() -> None:
    assert "repeats a prompt" in passed(well(), RULE)


def test_passes_that_take_little_of_the_step_are_not_worth_it() -> None:
    phases = {**HEALTHY, "train": 0.2, "logprob": 0.0}
    build = run(phases, knobs=OFF, framework="bundled", framework_version="0.1.0")
    counts = {"rollout/prompt_tokens": 512.0, "rollout/tokens": 64.0}
    assert "of the step" in passed(counted(build, counts), RULE)


def test_where_prompts_are_shared_there_is_no_question() -> None:
    on = with_knobs(train__share_prompts=True, rollout__num_generations=8)
    assert "computed once" in not_applicable(tokens(512.0, 64.0, on), RULE)


def test_a_pass_with_one_completion_has_nothing_to_share() -> None:
    single = {**OFF, "train.micro_batch": 1}
    assert "two completions" in not_applicable(tokens(512.0, 64.0, single), RULE)


def test_verls_lengths_are_enough_and_its_own_switch_is_named() -> None:
    knobs = with_knobs(rollout__num_generations=8, train__micro_batch=None)
    build = run(knobs=knobs, framework="verl", framework_version="0.9.0")
    for step in range(6):
        build.metrics(step, **{"prompt_length/mean": 512.0, "response_length/mean": 64.0})
    finding = finding_in(build, RULE)
    assert value(finding, "repeated") == pytest.approx(100 * 512 * 7 / 8 / 576)
    assert "use_prefix_grouper" in finding.fixes[0].spelling
    build.config = {"actor_rollout_ref": {"actor": {"strategy": "fsdp"}}}  # of an older version
    assert finding_in(build, RULE).fixes[0].knob is None


def test_without_a_switch_it_is_advice() -> None:
    fix = finding_in(tokens(512.0, 64.0, framework="trl", framework_version="1.16.0"), RULE).fixes[
        0
    ]
    assert (fix.knob, fix.safety) == (None, "needs-code")


def test_without_counts_the_rule_says_what_is_missing() -> None:
    assert "rollout/prompt_tokens" in missing(run(knobs=OFF), RULE)


def test_lengths_that_are_no_numbers_are_no_finding() -> None:
    build = run(knobs=OFF, framework="verl", framework_version="0.9.0")
    for step in range(6):
        build.metrics(step, **{"prompt_length/mean": float("nan"), "response_length/mean": 64.0})
    assert "unknown" in not_applicable(build, RULE)
    assert "rollout/prompt_tokens" in missing(tokens(float("nan"), 64.0), RULE)


@pytest.mark.parametrize(("micro", "meet"), [(2, True), (1, False)])
def test_two_completions_of_a_prompt_have_to_meet_in_a_pass(micro: int, meet: bool) -> None:
    build = tokens(512.0, 64.0, {**OFF, "train.micro_batch": micro})
    if meet:
        # Of 512 prompt tokens half are another copy.
        assert value(finding_in(build, RULE), "repeated") == pytest.approx(100 * 256 / 576)
    else:
        assert "two completions" in not_applicable(build, RULE)


@pytest.mark.parametrize("group", ["auto", 0])
def test_without_a_number_of_completions_nobody_knows(group: object) -> None:
    build = tokens(512.0, 64.0, {**OFF, "rollout.num_generations": group})
    assert "unknown" in not_applicable(build, RULE)
