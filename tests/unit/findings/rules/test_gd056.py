from __future__ import annotations

import numpy as np
import pytest

from grpo_doctor.findings.rules.gd056_length_growth import POINTS
from tests.build import TraceBuilder
from tests.unit.findings.learners import alike, learner
from tests.unit.findings.rules.saying import finding_in, missing, passed, value

KEY = "completions/mean_length"
FLAT = {"reward": lambda t, v, r: 0.5 + alike(len(t), 0.05, r)}


def sick() -> TraceBuilder:
    return learner({**FLAT, KEY: lambda t, v, r: 200 * (1 + 2 * t) + r.normal(0, 10, len(t))})


def well() -> TraceBuilder:
    return learner()


def test_the_added_tokens_are_time() -> None:
    finding = finding_in(sick(), "GD056")
    assert finding.severity == "medium"
    assert value(finding, "last tenth") == pytest.approx(580, rel=0.05)
    # The mean is 400 and it began at about 220: 45% of the tokens, times 93% of the step.
    assert finding.cost == pytest.approx(0.45 * 9.2 / 9.85, abs=0.03)
    assert value(finding, "50% longer") == pytest.approx(26, abs=5)


def test_growth_that_pays_is_what_it_is_for() -> None:
    assert "so does the reward" in passed(learner({KEY: lambda t, v, r: 200 * (1 + t)}), "GD056")


def test_a_reward_that_pays_for_length_is_found_although_it_rises() -> None:
    rng = np.random.default_rng(3)
    lengths = 200 * (1 + np.linspace(0, 1, 80)) + rng.normal(0, 15, 80)
    finding = finding_in(learner({KEY: lengths, "reward": 0.01 * lengths}), "GD056")
    assert value(finding, "correlation") == pytest.approx(1)
    assert "goes up and down with them" in finding.cause


def test_length_that_is_paid_for_and_soon_at_its_limit() -> None:
    rng = np.random.default_rng(4)
    # It is at its longest after a third of the run and falls a little from there.
    t = np.linspace(0, 1, 80)
    lengths = np.where(t < 0.3, 100 + 1000 * t, 430 - 60 * t) + rng.normal(0, 15, 80)
    finding = finding_in(learner({KEY: lengths, "reward": 0.01 * lengths}), "GD056")
    assert finding.severity == "medium"
    passed(learner({**FLAT, KEY: lengths}), "GD056")


def test_one_long_batch_at_the_end_is_none() -> None:
    late = {**FLAT, KEY: lambda t, v, r: np.where(t > 0.93, 700.0, v)}
    passed(learner(late), "GD056")
    assert "length" in missing(learner({KEY: None}), "GD056")


def test_a_loss_that_is_constant_already_is_not_advised() -> None:
    growing = {**FLAT, KEY: lambda t, v, r: 200 * (1 + 2 * t) + r.normal(0, 10, len(t))}
    usual = finding_in(learner(growing, knobs={"train.loss_type": "grpo"}), "GD056").fixes
    assert [fix.knob for fix in usual] == ["train.loss_type", None]
    constant = finding_in(learner(growing, knobs={"train.loss_type": "dr_grpo"}), "GD056").fixes
    assert [fix.knob for fix in constant] == [None]


def test_half_as_long_again_is_where_growth_begins() -> None:
    lengths = [200.0] * 20 + [300.0] * 30 + [500.0] * 30
    finding = finding_in(learner({**FLAT, KEY: lengths}), "GD056")
    # Of three steps in a row the first is as short as before.
    assert value(finding, "50% longer from step") == 22
    assert finding.steps[0] == 22


def test_a_reward_that_never_changes_goes_with_no_length() -> None:
    lengths = lambda t, v, r: 200 * (1 + 2 * t) + r.normal(0, 10, len(t))  # noqa: E731
    finding = finding_in(learner({"reward": 0.5, KEY: lengths}), "GD056")
    assert value(finding, "correlation of the changes") == 0
    even = finding_in(learner({**FLAT, KEY: np.arange(200.0, 600.0, 5.0)}), "GD056")
    assert value(even, "correlation of the changes") == 0


def test_the_fewest_steps_that_are_judged_can_show_that_length_is_paid_for() -> None:
    rng = np.random.default_rng(3)
    lengths = 200 * (1 + 2 * np.linspace(0, 1, POINTS)) + rng.normal(0, 15, POINTS)
    build = learner({KEY: lengths, "reward": 0.01 * lengths}, steps=POINTS)
    assert "goes up and down with them (correlation 1.00)" in finding_in(build, "GD056").cause


def test_completions_that_were_empty_at_first_grow_by_no_factor() -> None:
    build = learner({**FLAT, KEY: lambda t, v, r: np.where(t < 0.3, 0.0, 300.0)})
    assert passed(build, "GD056") == "completions are 0 tokens long at first, 300 at last"
