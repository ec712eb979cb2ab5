from __future__ import annotations

import numpy as np
import pytest

from tests.build import TraceBuilder
from tests.unit.findings.learners import learner
from tests.unit.findings.rules.saying import finding_in, missing, passed, value

LOW, HIGH = "clip_ratio/low_mean", "clip_ratio/high_mean"


def sick() -> TraceBuilder:
    return learner({HIGH: lambda t, v, r: 0.05 + 0.01 * r.random(len(t))})


def well() -> TraceBuilder:
    return learner()


def test_upwards_gets_a_wider_bound() -> None:
    finding = finding_in(sick(), "GD054")
    assert finding.headline == "Clipping limits upwards only"
    assert value(finding, "clipped upwards") == pytest.approx(5.5, abs=0.2)
    assert (finding.fixes[0].knob, finding.fixes[0].after) == ("train.epsilon_high", 0.28)


def test_downwards_gets_smaller_steps() -> None:
    finding = finding_in(learner({LOW: 0.06, HIGH: 0.001}), "GD054")
    assert finding.headline == "Clipping limits downwards only"
    assert all(fix.knob != "train.epsilon_high" for fix in finding.fixes)


def test_a_bound_that_is_wide_already() -> None:
    build = learner({LOW: 0.001, HIGH: 0.06}, knobs={"train.epsilon_high": 0.3})
    assert finding_in(build, "GD054").fixes[0].knob is None


def test_sides_that_take_turns_and_hardly_any_clipping() -> None:
    even = lambda t, v, r: r.exponential(0.05, len(t))  # noqa: E731
    passed(learner({LOW: even, HIGH: even}), "GD054")
    assert "are clipped" in passed(learner({LOW: 0.0, HIGH: 0.01}), "GD054")
    missing(learner({LOW: None}), "GD054")


def clipping(low: list[float], high: list[float]) -> TraceBuilder:
    """Eighty steps of which each ten are alike."""
    return learner({LOW: np.tile(low, 8), HIGH: np.tile(high, 8)})


@pytest.mark.parametrize(
    ("low", "high", "one_sided"),
    [
        ([0.125] * 10, [0.375] * 10, True),
        ([0.125] * 10, [0.3125] * 10, False),  # in every step, but not three times as much
        ([0.125] * 10, [0.625] * 8 + [0.0] * 2, True),
        ([0.125] * 10, [0.625] * 7 + [0.0] * 3, False),  # much more, but not in most steps
        ([0.125] * 2 + [0.0] * 8, [0.625] * 7 + [0.0] * 3, False),  # nor where neither is clipped
        ([0.375] * 10, [0.125] * 10, True),
    ],
)
def test_one_side_leads_threefold_and_in_four_of_five_steps(
    low: list[float], high: list[float], one_sided: bool
) -> None:
    if one_sided:
        assert finding_in(clipping(low, high), "GD054").severity == "low"
    else:
        assert "times the smaller one" in passed(clipping(low, high), "GD054")
