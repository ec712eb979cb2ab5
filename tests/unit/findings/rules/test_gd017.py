from __future__ import annotations

import pytest

from tests.build import TraceBuilder
from tests.unit.findings.rules.saying import (
    HEALTHY,
    even,
    finding_in,
    rows,
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


def a_run_that_overlaps_already_is_left_to_gd027() -> TraceBuilder:
    build = generating(None)
    build.span(0, "rollout/wait", 0.1, 0.2)
    return build


RUNS = {
    "ms swift has a flag and the bundled trainer words": lambda: run(
        TRAINING, knobs=SERVER, framework="bundled", framework_version="0.1.0"
    ),
    "little to overlap passes": lambda: run(
        {**HEALTHY, "rollout": 0.5, "train": 9.0}, knobs=SERVER
    ),
    "an engine within the ranks is no server": lambda: run(
        TRAINING, knobs={**SERVER, "vllm.use": False}
    ),
    **rows(
        "sides that work as long are the engines idling",
        lambda rollout_s: even({"rollout": rollout_s}, knobs=SERVER),
        5.0,
        5.1,
    ),
    **rows(
        "three twentieths of the step have to overlap",
        lambda rollout_s: even({"rollout": rollout_s}, knobs=SERVER),
        1.5,
        1.49,
    ),
    "without samples it is not": lambda: generating(None),
    "gpus that work meanwhile are not idle": lambda: generating(80.0),
}
