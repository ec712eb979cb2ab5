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
    step_starts,
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


def test_little_to_overlap_passes() -> None:
    phases = {**HEALTHY, "rollout": 0.5, "train": 9.0}
    assert "could overlap" in passed(run(phases, knobs=SERVER), "GD017")


def test_an_engine_within_the_ranks_is_no_server() -> None:
    assert "not a separate server" in not_applicable(well(), "GD017")
    knobs = {**SERVER, "vllm.use": False}
    assert "not a separate server" in not_applicable(run(TRAINING, knobs=knobs), "GD017")


@pytest.mark.parametrize(("rollout_s", "idle"), [(5.0, "rollout server"), (5.1, "trainer")])
def test_sides_that_work_as_long_are_the_engines_idling(rollout_s: float, idle: str) -> None:
    finding = finding_in(even({"rollout": rollout_s}, knobs=SERVER), "GD017")
    assert (finding.phases, finding.headline.split(" is ")[0]) == (("rollout",), f"The {idle}")


@pytest.mark.parametrize(("rollout_s", "enough"), [(1.5, True), (1.49, False)])
def test_three_twentieths_of_the_step_have_to_overlap(rollout_s: float, enough: bool) -> None:
    build = even({"rollout": rollout_s}, knobs=SERVER)
    if enough:
        assert finding_in(build, "GD017").cost == 0.15
    else:
        assert passed(build, "GD017") == "at most 15% of the step could overlap"


GENERATING = {**HEALTHY, "rollout": 9.0}


def generating(util: float | None = 0.0) -> TraceBuilder:
    """Nine seconds of rollout, with the trainer's GPUs that busy."""
    build = run(GENERATING, knobs=SERVER)
    if util is not None:
        times, values = [], []
        for start in step_starts(GENERATING):
            times += [start, start + 9.4]
            values += [util, 95.0]
        for rank in range(4):
            build.series("gpu.util", "%", times, values, scope="gpu", gpu=f"GPU-{rank}")
    return build


def test_gpus_that_were_seen_idle_make_it_grave() -> None:
    finding = finding_in(generating(), "GD017")
    assert finding.cost == pytest.approx(9.0 * 1.01 / step_s(GENERATING), rel=0.01)
    assert value(finding, "GPUs in rollout") < 2
    assert (finding.severity, finding.confidence) == ("high", 0.9)


def test_without_samples_it_is_not() -> None:
    finding = finding_in(generating(None), "GD017")
    assert (finding.severity, finding.confidence) == ("medium", 0.8)


def test_gpus_that_work_meanwhile_are_not_idle() -> None:
    assert finding_in(generating(80.0), "GD017").severity == "medium"


def test_a_run_that_overlaps_already_is_left_to_gd027() -> None:
    build = generating(None)
    build.span(0, "rollout/wait", 0.1, 0.2)
    assert "see GD027" in not_applicable(build, "GD017")
