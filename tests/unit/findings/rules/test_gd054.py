from __future__ import annotations

import pytest

from tests.build import TraceBuilder
from tests.unit.findings.learners import learner
from tests.unit.findings.rules.saying import finding, missing, passed, value

LOW, HIGH = "clip_ratio/low_mean", "clip_ratio/high_mean"


def sick() -> TraceBuilder:
    return learner({HIGH: lambda t, v, r: 0.05 + 0.01 * r.random(len(t))})


def well() -> TraceBuilder:
    return learner()


def test_upwards_gets_a_wider_bound() -> None:
    found = finding(sick(), "GD054")
    assert found.headline == "Clipping limits upwards only"
    assert value(found, "clipped upwards") == pytest.approx(5.5, abs=0.2)
    assert (found.fixes[0].knob, found.fixes[0].after) == ("train.epsilon_high", 0.28)


def test_downwards_gets_smaller_steps() -> None:
    found = finding(learner({LOW: 0.06, HIGH: 0.001}), "GD054")
    assert found.headline == "Clipping limits downwards only"
    assert all(fix.knob != "train.epsilon_high" for fix in found.fixes)


def test_a_bound_that_is_wide_already() -> None:
    build = learner({LOW: 0.001, HIGH: 0.06}, knobs={"train.epsilon_high": 0.3})
    assert finding(build, "GD054").fixes[0].knob is None


def test_sides_that_take_turns_and_hardly_any_clipping() -> None:
    even = lambda t, v, r: r.exponential(0.05, len(t))  # noqa: E731
    passed(learner({LOW: even, HIGH: even}), "GD054")
    assert "are clipped at all" in passed(learner({LOW: 0.0, HIGH: 0.01}), "GD054")
    missing(learner({LOW: None}), "GD054")
