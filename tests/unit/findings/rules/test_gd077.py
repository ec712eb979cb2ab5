from __future__ import annotations

import pytest

from tests.build import TraceBuilder
from tests.unit.findings.rules.saying import (
    HEALTHY,
    finding_in,
    mid,
    missing,
    not_applicable,
    passed,
    run,
    value,
)

RULE = "GD077"
SLOW = {**HEALTHY, "reward": 2.0}


TRL = ("completions/mean_length", "completions/max_length")
VERL = ("response_length/mean", "response_length/max")


def lengths(
    build: TraceBuilder, mean: float, longest: float, names: tuple[str, str] = TRL
) -> TraceBuilder:
    for step in range(6):
        build.metrics(step, **{names[0]: mean, names[1]: longest})
    return build


def sick() -> TraceBuilder:
    return lengths(run(SLOW), 200.0, 800.0)


def well() -> TraceBuilder:
    return lengths(run(SLOW), 790.0, 800.0)


def test_what_fits_into_the_rollout_is_most_of_the_scoring() -> None:
    finding = finding_in(sick(), RULE)
    assert value(finding, "would fit") == pytest.approx(0.9 * 2.0 * 1.01, rel=0.02)
    assert finding.cost == pytest.approx(0.9 * 2.0 / 11.8, rel=0.03)
    assert finding.fixes[0].safety == "needs-code"
    assert -18 < mid(finding.fixes[0]) < -8


def test_completions_of_one_length_leave_no_time_for_it() -> None:
    assert "of the step is scoring that could run" in passed(well(), RULE)


def test_a_short_rollout_bounds_what_fits() -> None:
    finding = finding_in(lengths(run({**SLOW, "rollout": 2.0}), 400.0, 800.0), RULE)
    assert value(finding, "would fit") == pytest.approx(0.5 * 2.0 * 1.01, rel=0.02)


def test_quick_rewards_are_no_finding() -> None:
    assert "of the step" in passed(lengths(run(), 200.0, 800.0), RULE)


def test_milliseconds_are_not_worth_a_change_of_code() -> None:
    quick = {phase: seconds / 50 for phase, seconds in SLOW.items()}
    assert "of the step is scoring that could run" in passed(
        lengths(run(quick), 200.0, 800.0), RULE
    )


def test_verls_lengths_are_enough() -> None:
    build = lengths(run(SLOW, framework="verl"), 200.0, 800.0, VERL)
    assert finding_in(build, RULE).phases == ("reward",)


def test_rewards_that_do_not_follow_a_rollout_are_not_asked_about() -> None:
    apart = {"rollout": 5.0, "logprob": 1.0, "reward": 2.0, "train": 3.0}
    assert "right after a `rollout`" in not_applicable(lengths(run(apart), 200.0, 800.0), RULE)


def test_lengths_that_are_no_numbers_are_no_finding() -> None:
    assert not_applicable(lengths(run(SLOW), float("nan"), 800.0), RULE)
    assert "mean_length" in missing(run(SLOW), RULE)


def test_one_length_without_the_other_leaves_it_to_the_other_names() -> None:
    for name in TRL:
        build = run(SLOW, framework="verl")
        for step in range(6):
            build.metrics(step, **{name: 500.0, VERL[0]: 200.0, VERL[1]: 800.0})
        assert value(finding_in(build, RULE), "mean completion") == 200.0


def test_steps_without_completions_say_nothing_of_lengths() -> None:
    build = lengths(run(SLOW), 200.0, 800.0)
    build.metrics(5, **{TRL[0]: 0.0, TRL[1]: 0.0})
    finding = finding_in(build, RULE)
    assert (value(finding, "mean completion"), value(finding, "longest completion")) == (
        200.0,
        800.0,
    )
    assert "no step has a mean" in not_applicable(lengths(run(SLOW), 0.0, 0.0), RULE)
