from __future__ import annotations

import math

import numpy as np
import pytest

from tests.build import TraceBuilder
from tests.unit.findings.learners import learner
from tests.unit.findings.rules.saying import finding_in, missing, not_applicable, passed, value


def sick() -> TraceBuilder:
    return learner({"rewards/format/mean": 0.0, "rewards/format/std": 0.0})


def well() -> TraceBuilder:
    return learner()


def test_a_function_that_never_gives_anything() -> None:
    finding = finding_in(sick(), "GD057")
    assert finding.severity == "medium"
    assert finding.headline == "Reward `format` always returns 0"
    assert value(finding, "format: share of all deviation") == 0
    assert finding.evidence[0].text.startswith("format: "), "the one that it is about comes first"


def test_one_that_is_always_satisfied_is_only_a_note() -> None:
    build = learner({"rewards/format/mean": 1.0, "rewards/format/std": 0.0})
    assert finding_in(build, "GD057").severity == "info"


def test_one_that_decides_alone() -> None:
    build = learner({"rewards/accuracy/std": 30.0})
    finding = finding_in(build, "GD057")
    assert finding.severity == "low"
    assert "`accuracy` decides alone" in finding.headline
    assert value(finding, "accuracy: share") == pytest.approx(98.4, abs=0.3)
    (fix,) = finding.to_paste
    assert fix.spelling == "--reward_weights 0.01 1"
    assert "Weighs accuracy 0.01 times as much" in fix.risk
    other = learner({"rewards/accuracy/std": 30.0}, framework="unknown", framework_version=None)
    (step,) = finding_in(other, "GD057").next_steps
    assert step.spelling == "weigh accuracy 0.01 times as much"


def test_weights_count() -> None:
    build = learner({"rewards/accuracy/std": 30.0}, knobs={"reward.weights": "0.01 1.0"})
    passed(build, "GD057")


def test_a_function_that_was_learned_is_healthy() -> None:
    done = {
        "rewards/format/mean": lambda t, v, r: np.minimum(1, 0.5 + 2 * t),
        "rewards/format/std": lambda t, v, r: np.maximum(0, 0.5 - 2 * t),
    }
    passed(learner(done), "GD057")


def test_one_function_alone_and_none() -> None:
    alone = {"rewards/format/mean": None, "rewards/format/std": None}
    assert "two are" in not_applicable(learner(alone), "GD057")
    none = {**alone, "rewards/accuracy/mean": None, "rewards/accuracy/std": None}
    assert "rewards/<function>/mean" in missing(learner(none), "GD057")


OTHER = {"rewards/other/mean": 1.0, "rewards/other/std": 0.0}


def test_what_never_gives_anything_is_named_before_what_always_does() -> None:
    build = learner({"rewards/format/mean": 0.0, "rewards/format/std": 0.0, **OTHER})
    finding = finding_in(build, "GD057")
    assert finding.headline == "Reward `format` always returns 0"
    assert finding_in(learner(OTHER), "GD057").headline == "Reward `other` always returns the same"


@pytest.mark.parametrize(("spread", "alone"), [(0.8, True), (0.79, False)])
def test_one_of_the_others_may_decide_alone_besides(spread: float, alone: bool) -> None:
    build = learner({**OTHER, "rewards/accuracy/std": spread, "rewards/format/std": 1.0 - spread})
    sentence = "Of the others `accuracy` decides alone."
    assert (sentence in finding_in(build, "GD057").cause) is alone


@pytest.mark.parametrize("change", [None, math.nan])
def test_a_function_whose_deviation_is_not_known_is_left_out(change: float | None) -> None:
    assert "two are" in not_applicable(learner({"rewards/format/std": change}), "GD057")
    few = np.where(np.arange(80) < 5, 0.1, math.nan)
    assert "two are" in not_applicable(learner({"rewards/format/std": few}), "GD057")
    assert "two are" in not_applicable(learner({"rewards/format/mean": math.nan}), "GD057")


def test_what_is_equal_within_a_step_alone_is_not_always_the_same() -> None:
    series = {"rewards/other/mean": [-0.1 * (step % 5) for step in range(80)]}
    finding = finding_in(learner({**OTHER, **series}), "GD057")
    assert finding.headline == "Reward `other` returns the same for all completions of a step"
    assert finding.evidence[0].text.startswith("other:")
