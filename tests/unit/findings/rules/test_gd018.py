from __future__ import annotations

import pytest

from tests.build import TraceBuilder
from tests.unit.findings.rules.saying import (
    HEALTHY,
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
GENERATING = {**HEALTHY, "rollout": 9.0}


def generating(util: float | None) -> TraceBuilder:
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


def sick() -> TraceBuilder:
    return generating(0.0)


def well() -> TraceBuilder:
    return run({**HEALTHY, "rollout": 2.0}, knobs=SERVER)


def test_gpus_that_were_seen_idle_make_it_grave() -> None:
    finding = finding_in(sick(), "GD018")
    assert finding.cost == pytest.approx(9.0 * 1.01 / step_s(GENERATING), rel=0.01)
    assert value(finding, "GPUs in rollout") < 2
    assert (finding.severity, finding.confidence) == ("high", 0.9)


def test_without_samples_it_is_not() -> None:
    finding = finding_in(generating(None), "GD018")
    assert (finding.severity, finding.confidence) == ("medium", 0.8)


def test_gpus_that_work_meanwhile_are_not_idle() -> None:
    assert finding_in(generating(80.0), "GD018").severity == "medium"


def test_a_trainer_that_works_longer_is_the_other_rules() -> None:
    assert "trainer works" in passed(well(), "GD018")


def test_an_engine_within_the_ranks_is_no_server() -> None:
    assert "not a server" in not_applicable(run(GENERATING), "GD018")


def test_a_run_that_overlaps_already_is_left_to_gd027() -> None:
    build = generating(None)
    build.span(0, "rollout/wait", 0.1, 0.2)
    assert "see GD027" in not_applicable(build, "GD018")
