from __future__ import annotations

import numpy as np
import pytest

from tests.build import TraceBuilder
from tests.unit.findings.learners import learner
from tests.unit.findings.rules.saying import finding_in, missing, passed, value

KEY = "sampling/sampling_logp_difference/mean"


def sick() -> TraceBuilder:
    return learner({KEY: lambda t, v, r: 0.15 + 0.01 * r.random(len(t))})


def well() -> TraceBuilder:
    return learner()


def test_the_gap_is_graded() -> None:
    finding = finding_in(sick(), "GD060")
    assert finding.severity == "medium"
    assert value(finding, "first tenth") == pytest.approx(0.155, abs=0.005)
    assert finding_in(learner({KEY: 0.4}), "GD060").severity == "high"
    assert finding_in(learner({KEY: 0.06}), "GD060").severity == "low"


def test_one_that_grows_points_at_the_weights() -> None:
    finding = finding_in(learner({KEY: lambda t, v, r: 0.005 + 0.3 * t}), "GD060")
    assert "more and more" in finding.cause
    assert "some may be missing" in finding.fixes[0].spelling
    assert value(finding, "from step") == pytest.approx(13, abs=2)


def test_trl_has_a_flag() -> None:
    build = learner(
        {KEY: 0.15},
        knobs={"rollout.importance_correction": False},
        framework="trl",
        framework_version="1.16.0",
    )
    assert finding_in(build, "GD060").fixes[0].knob == "rollout.importance_correction"


def test_rounding_passes_and_no_engine_says_nothing() -> None:
    passed(learner({KEY: 0.02}), "GD060")
    assert "sampling_logp_difference" in missing(learner({KEY: None}), "GD060")


@pytest.mark.parametrize(("framework", "version"), [("trl", "1.16.0"), ("openrlhf", "0.8.0")])
def test_a_correction_that_is_on_is_not_advised(framework: str, version: str) -> None:
    build = learner(
        {KEY: 0.15},
        knobs={"rollout.importance_correction": True},
        framework=framework,
        framework_version=version,
    )
    fixes = finding_in(build, "GD060").fixes
    assert "rollout.importance_correction" not in [fix.knob for fix in fixes]


@pytest.mark.parametrize(("last", "grows"), [(0.2, False), (0.21, True)])
def test_a_gap_grows_where_it_more_than_doubles(last: float, grows: bool) -> None:
    finding = finding_in(learner({KEY: lambda t, v, r: np.where(t < 0.5, 0.1, last)}), "GD060")
    assert ("more and more" in finding.cause) is grows
    assert finding.fixes[0].spelling.startswith("compare the engine's weights") is grows
