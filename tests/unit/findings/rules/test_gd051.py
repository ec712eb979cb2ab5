from __future__ import annotations

import numpy as np
import pytest

from tests.build import TraceBuilder
from tests.unit.findings.learners import learner
from tests.unit.findings.rules.saying import finding_in, missing, passed, value

RATIO = "completions/clipped_ratio"


FLAT = {"reward": lambda t, v, r: 0.5 + r.normal(0, 0.05, len(t))}


def sick() -> TraceBuilder:
    return learner({**FLAT, RATIO: lambda t, v, r: r.binomial(256, 0.2, len(t)) / 256})


def well() -> TraceBuilder:
    return learner()


def test_the_limit_is_doubled() -> None:
    finding = finding_in(sick(), "GD051")
    assert finding.severity == "medium"
    assert value(finding, "mean of the run") == pytest.approx(20, abs=1)
    assert finding.fixes[0].spelling == "--max_completion_length 1024"
    assert finding.fixes[0].before == "512 (default)"
    assert "limit" not in {row.text for row in finding.evidence}


@pytest.mark.parametrize(
    ("share", "severity"), [(0.06, "low"), (0.3, "medium"), (0.6, "high"), (1.0, "high")]
)
def test_grades(share: float, severity: str) -> None:
    assert finding_in(learner({**FLAT, RATIO: share}), "GD051").severity == severity


def test_a_reward_that_rises_all_the_same_or_a_short_run() -> None:
    rises = {"reward": lambda t, v, r: t + r.normal(0, 0.05, len(t))}
    assert finding_in(learner({**rises, RATIO: 0.9}), "GD051").severity == "low"
    assert finding_in(learner({**FLAT, RATIO: 0.9}, steps=10), "GD051").severity == "low"
    assert "judged from 20 on" in passed(learner({**FLAT, RATIO: 0.4}, steps=10), "GD051")


def test_a_late_rise_counts() -> None:
    finding = finding_in(learner({RATIO: lambda t, v, r: np.where(t > 0.8, 0.4, 0.0)}), "GD051")
    assert value(finding, "last tenth") == 40


@pytest.mark.parametrize(("at_last", "found"), [(0.4, True), (0.1, True), (0.04, False)])
def test_a_model_that_learns_to_end_is_told_to_wait(at_last: float, found: bool) -> None:
    build = learner(
        {**FLAT, RATIO: lambda t, v, r: 0.98 - (0.98 - at_last) * np.minimum(1, 1.2 * t)}
    )
    if not found:
        assert "4.0% of the completions are truncated in the last tenth" in passed(build, "GD051")
        return
    finding = finding_in(build, "GD051")
    assert finding.severity == "low"
    assert "it is falling" in finding.cause
    assert str(finding.evidence[0].value).endswith(f"{100 * at_last:.0f}% at last (falling)")
    assert finding.to_paste == ()


def test_a_model_that_never_ends_gets_other_advice() -> None:
    finding = finding_in(learner({RATIO: 1.0}), "GD051")
    assert "end token" in finding.fixes[0].spelling
    assert "No completion ends" in finding.headline


def test_a_model_that_stopped_to_end_does_not_need_more_room() -> None:
    finding = finding_in(
        learner({**FLAT, RATIO: lambda t, v, r: np.where(t > 0.4, 1.0, 0.1)}), "GD051"
    )
    assert "checkpoint from before" in finding.fixes[0].spelling
    assert all(fix.knob != "rollout.max_completion_length" for fix in finding.fixes)


def test_few_and_missing() -> None:
    assert "2.0% of the completions" in passed(learner({RATIO: 0.02}), "GD051")
    assert "response_length/clip_ratio" in missing(learner({RATIO: None}), "GD051")


@pytest.mark.parametrize(("share", "enough"), [(0.5, True), (0.499, False)])
def test_of_few_steps_only_half_of_all_completions_count(share: float, enough: bool) -> None:
    build = learner({**FLAT, RATIO: share}, steps=10)
    if enough:
        assert finding_in(build, "GD051").severity == "low"
    else:
        assert "49.9% of the completions are cut off in 10 steps" in passed(build, "GD051")


@pytest.mark.parametrize(
    ("at_first", "at_last", "stopped"),
    [(0.49, 0.98, True), (0.5, 0.98, False), (0.49, 0.97, False)],
)
def test_who_ended_half_and_then_hardly_any_has_stopped_to_end(
    at_first: float, at_last: float, stopped: bool
) -> None:
    build = learner({**FLAT, RATIO: lambda t, v, r: np.where(t > 0.4, at_last, at_first)})
    knobs = [fix.knob for fix in finding_in(build, "GD051").fixes]
    assert ("rollout.max_completion_length" in knobs) is not stopped


@pytest.mark.parametrize(("limit", "longer"), [(15, [30]), (16, []), (512, []), (None, [])])
def test_a_model_that_never_ends_gets_more_room_only_under_a_hardly_usable_limit(
    limit: int | None, longer: list[int]
) -> None:
    knobs = {} if limit is None else {"rollout.max_completion_length": limit}
    build = learner({RATIO: 1.0}, knobs=knobs, framework="ms-swift" if limit else "unknown")
    fixes = finding_in(build, "GD051").fixes
    assert [f.after for f in fixes if f.knob == "rollout.max_completion_length"] == longer
    assert (len(fixes) > 1) is bool(longer)
