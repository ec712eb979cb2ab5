from __future__ import annotations

import pytest

from tests.build import TraceBuilder
from tests.unit.findings.rules.saying import (
    HEALTHY,
    even,
    finding_in,
    not_applicable,
    passed,
    run,
    step_s,
    value,
    with_knobs,
)

SERVER = with_knobs(vllm__mode="server")
TRAINING = {**HEALTHY, "rollout": 3.0, "train": 6.0}


def sick() -> TraceBuilder:
    return run(TRAINING, knobs=SERVER)


def well() -> TraceBuilder:
    return run(TRAINING)


def test_the_shorter_side_is_what_could_overlap() -> None:
    finding = finding_in(sick(), "GD017")
    engine = 3.0 * 1.01 / step_s(TRAINING)
    assert value(finding, "could overlap at most") == pytest.approx(100 * engine, rel=0.01)
    # An asynchronous rollout hides the sync and the rewards with it.
    assert finding.cost == pytest.approx(finding.gain / 100)
    assert finding.phases == ("sync", "rollout", "reward")
    assert value(finding, "the trainer works") == pytest.approx(
        100 * (1 - engine - 0.303 / step_s(TRAINING)), abs=0.1
    )
    assert finding.severity == "medium"  # never more: overlapping has been seen to lose
    assert finding.fixes[0].safety == "changes-algorithm"


def test_ms_swift_has_a_flag_and_the_bundled_trainer_words() -> None:
    assert finding_in(sick(), "GD017").fixes[0].spelling == "--async_generate true"
    build = run(TRAINING, knobs=SERVER, framework="bundled", framework_version="0.1.0")
    (fix,) = finding_in(build, "GD017").fixes
    assert fix.knob is None
    assert "no flag" in fix.spelling


def test_an_engine_that_works_longer_is_the_other_rules() -> None:
    assert "engine works" in passed(run({**HEALTHY, "rollout": 9.0}, knobs=SERVER), "GD017")


def test_little_to_overlap_passes() -> None:
    phases = {**HEALTHY, "rollout": 0.5, "train": 9.0}
    assert "could overlap" in passed(run(phases, knobs=SERVER), "GD017")


def test_an_engine_within_the_ranks_is_no_server() -> None:
    assert "not a server" in not_applicable(well(), "GD017")
    knobs = {**SERVER, "vllm.use": False}
    assert "not a server" in not_applicable(run(TRAINING, knobs=knobs), "GD017")


@pytest.mark.parametrize(("rollout_s", "rule"), [(5.0, "GD017"), (5.1, "GD018")])
def test_sides_that_work_as_long_are_the_engines_idling(rollout_s: float, rule: str) -> None:
    build = even({"rollout": rollout_s}, knobs=SERVER)
    for each in ("GD017", "GD018"):
        if each == rule:
            assert finding_in(build, each).phases == ("rollout",)
        else:
            assert "of the step" in passed(build, each)


@pytest.mark.parametrize(("rollout_s", "enough"), [(1.5, True), (1.49, False)])
def test_three_twentieths_of_the_step_have_to_overlap(rollout_s: float, enough: bool) -> None:
    build = even({"rollout": rollout_s}, knobs=SERVER)
    if enough:
        assert finding_in(build, "GD017").cost == 0.15
    else:
        assert passed(build, "GD017") == "at most 15% of the step could overlap"
