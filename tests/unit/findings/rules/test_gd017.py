from __future__ import annotations

from tests.build import TraceBuilder
from tests.unit.findings.rules.saying import HEALTHY, even, rows, run, step_starts, with_knobs

SERVER = with_knobs(vllm__mode="server")
TRAINING = {**HEALTHY, "rollout": 3.0, "train": 6.0}


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


def a_run_that_overlaps_already_is_left_to_gd027() -> TraceBuilder:
    build = generating(None)
    build.span(0, "rollout/wait", 0.1, 0.2)
    return build


RUNS = {
    "sick": lambda: run(TRAINING, knobs=SERVER),
    "well": lambda: run(TRAINING),
    "ms swift has a flag and the bundled trainer words": lambda: run(TRAINING, knobs=SERVER,
        framework="bundled", framework_version="0.1.0"),
    "little to overlap passes": lambda: run({**HEALTHY, "rollout": 0.5, "train": 9.0},
        knobs=SERVER),
    "an engine within the ranks is no server": lambda: run(TRAINING,
        knobs={**SERVER, "vllm.use": False}),
    **rows("sides that work as long are the engines idling",
        lambda rollout_s: even({"rollout": rollout_s}, knobs=SERVER), 5.0, 5.1),
    **rows("three twentieths of the step have to overlap",
        lambda rollout_s: even({"rollout": rollout_s}, knobs=SERVER), 1.5, 1.49),
    "without samples it is not": lambda: generating(None),
    "gpus that work meanwhile are not idle": lambda: generating(80.0),
}  # fmt: skip
