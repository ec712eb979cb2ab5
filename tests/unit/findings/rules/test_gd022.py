from __future__ import annotations

from tests.build import TraceBuilder
from tests.unit.findings.example_runs import GIB
from tests.unit.findings.recorded import memory
from tests.unit.findings.rules.saying import rows, run, step_starts, with_knobs
from tests.unit.findings.rules.test_gd020 import gathering

WHOLE = with_knobs(deepspeed__stage=3)
PARTS = with_knobs(deepspeed__stage=3, sync__move_model_batches=200)


def gathered_whole(
    gib: float, knobs: dict[str, object] = WHOLE, *, gpus_gib: tuple[float, ...] = (80.0,) * 4
) -> TraceBuilder:
    """GPU memory that is this full while the weights are sent, at the end of the step; of a GPU
    that is not of 80 GiB 100 GiB are."""
    build = run(knobs=knobs, memory_gib=None)
    times = [at for start in step_starts() for at in (start, start + 9.6)]
    for rank, size in enumerate(gpus_gib):
        values = [40.0 * GIB, (gib if size == 80.0 else 100.0) * GIB] * (len(times) // 2)
        build.gpu(f"GPU-{rank}", index=rank, memory_gib=size)
        build.series("gpu.memory_used", "bytes", times, values, scope="gpu", gpu=f"GPU-{rank}")
    return build


RUNS = {
    "sick": lambda: gathering(200, 0.006, knobs=PARTS),
    "well": lambda: gathering(8, 0.05, knobs={**PARTS, "sync.move_model_batches": 8}),
    "many large parts are bytes and not a fixed cost": lambda: gathering(32, 0.06, knobs=PARTS),
    "a cheap sync may have many parts": lambda: gathering(200, 0.0005, knobs=PARTS),
    "a whole model gathered into a full gpu is cut": lambda: gathered_whole(76.0),
    "the evidence is of the gpu with most in use not of the": lambda: gathered_whole(76.0,
        gpus_gib=(80.0, 80.0, 80.0, 140.0)),
    "a whole model with room passes": lambda: gathered_whole(60.0),
    "weights that are whole anyway are not gathered": lambda: gathered_whole(76.0,
        {**WHOLE, "deepspeed.stage": 2}),
    "a framework without the setting is not asked": lambda: run(framework="trl",
        framework_version="1.16.0"),
    **rows("a whole model is cut from nine tenths on", gathered_whole, 72.0, 71.9),
    **rows("parts may grow up to three quarters of the memory",
        lambda gib: memory(gathering(200, 0.006, knobs=PARTS), {"sync": gib}), 60.0, 60.1),
    **rows("sixteen parts are many", lambda count: gathering(count, 0.0185, knobs=PARTS), 16, 15),
}  # fmt: skip
