from __future__ import annotations

from tests.build import TraceBuilder
from tests.unit.findings.rules.saying import HEALTHY, run, step_starts, with_knobs

OFFLOADED = with_knobs(
    deepspeed__preset="zero3_offload",
    deepspeed__offload_param=True,
    deepspeed__offload_optimizer=True,
    train__grad_accumulation=4,
    train__gradient_checkpointing=True,
)


# Sick: all weights from the host twelve times a step, over a link that shows it.


def with_traffic(build: TraceBuilder, bytes_per_s: float) -> TraceBuilder:
    starts = step_starts()
    for rank in range(4):
        times, values = [], []
        for start in starts:
            times += [start, start + 5.3]  # the rollout is over then
            values += [0.0, bytes_per_s]
        build.series("gpu.pcie_rx", "bytes/s", times, values, scope="gpu", gpu=f"GPU-{rank}")
    return build


def a_link_of_a_gpu_that_no_rank_works_on_says() -> TraceBuilder:
    build = run(knobs=OFFLOADED)
    build.gpu("GPU-9", index=9)
    build.series("gpu.pcie_rx", "bytes/s", [0.0, 60.0], [15e9, 15e9], scope="gpu", gpu="GPU-9")
    return build


RUNS = {
    "sick": lambda: with_traffic(run(knobs=OFFLOADED), 15e9),
    "well": lambda:
        run(knobs=with_knobs(deepspeed__preset="zero3", deepspeed__offload_param=False)),
    "without traffic it claims no cost": lambda: run(knobs=OFFLOADED),
    "on a machine without a gpu it is never severe": lambda: run(knobs=OFFLOADED, memory_gib=None),
    "a json file gets the line to edit": lambda:
        run(knobs={**OFFLOADED, "deepspeed.preset": "mine.json"}),
    "short passes are left alone": lambda:
        run({**HEALTHY, "train": 0.3, "logprob": 0.1, "rollout": 20.0}, knobs=OFFLOADED),
    "without settings it says so": lambda: run(knobs={}, framework="unknown",
        framework_version=None),
}  # fmt: skip
