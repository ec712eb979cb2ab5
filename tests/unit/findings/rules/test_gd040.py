from __future__ import annotations

from typing import Any

from grpo_doctor.trace.model import Exit, Kind
from tests.build import TraceBuilder
from tests.unit.findings.example_runs import SETTINGS, run
from tests.unit.findings.recorded import count, knob, memory
from tests.unit.findings.rules.saying import named, rows

BATCH: dict[str, Any] = {**SETTINGS, "train.micro_batch": 4, "train.grad_accumulation": 2}


def full(
    rollout: float = 60.0, train: float = 79.0, retries: float = 0.0, **knobs: Any
) -> TraceBuilder:
    build = run(knobs={**BATCH, **knobs}, memory_gib=None)
    memory(build, {"rollout": rollout, "train": train})
    return count(build, "memory/alloc_retries", lambda _, step: 5 + retries * step)


def where_memory_ran_out_decides_what_to_change() -> TraceBuilder:
    build = TraceBuilder(
        knobs={**SETTINGS, "vllm.gpu_memory_utilization": 0.9},
        framework="ms-swift",
        framework_version="4.6.0",
    )
    build.span(0, "rollout", 0.0, 5.0)
    build.series("memory/out_of_memory/rollout", "", [5.0], [1e9], scope="counter", rank=0)
    return build


def training_that_ran_out_under_zero_2_is_sent_to() -> TraceBuilder:
    build = full(retries=2.0, **knob("deepspeed.preset", "zero2"))
    build.series("memory/out_of_memory/train", "", [50.0], [0.0], scope="counter", rank=1)
    return build


def unknown_values_are_no_retries() -> TraceBuilder:
    build = run(knobs=BATCH)
    count(build, "memory/alloc_retries", float("nan"), ranks=[0])
    count(build, "memory/alloc_retries", 7.0, ranks=[1])
    return build


def a_run_without_steps_is_judged_by_its_memory(steps: int) -> TraceBuilder:
    build = TraceBuilder(knobs=BATCH)
    for step in range(steps):
        build.step(0, step, float(step), {"train": 1.0})
    build.span(0, "train", 1.0 * steps, 1.0 * steps + 5)
    build.gpu("GPU-0").series(
        "gpu.memory_used", "bytes", [0.0, 5.0], [10 * 2**30, 79 * 2**30], scope="gpu", gpu="GPU-0"
    )
    return build


OUT_OF_MEMORY = "OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB"


def a_run_that_memory_ended_is_told_of_once(error: str, ran_out: bool) -> TraceBuilder:
    build = full()
    build.exit = Exit(state="failed", code=1)
    build.row(Kind.INSTANT, 1, f"error/train/{error}", 50.0, 50.0)
    if ran_out:
        build.series("memory/out_of_memory/train", "", [50.0], [1e9], scope="counter", rank=1)
    return build


def retrying(*samples: tuple[float, float]) -> TraceBuilder:
    """Four steps from the tenth second on, and what a counter of the allocator said when."""
    build = TraceBuilder(knobs=BATCH)
    for step in range(4):
        build.step(0, step, 10.0 * (step + 1), {"train": 10.0})
    times, values = [at for at, _ in samples], [count for _, count in samples]
    return build.series("memory/alloc_retries", "", times, values, scope="counter", rank=0)


RUNS = {
    "sick": lambda: full(retries=2.0),
    "well": lambda: full(train=72.0),
    "retries before the first step that counts are a start": lambda: full(train=72.0),
    "a cache that fills the gpu in rollouts is as told": lambda: full(rollout=79.0, train=60.0),
    **named(a_run_without_steps_is_judged_by_its_memory, 0, 1),
    **named(a_run_that_memory_ended_is_told_of_once, (OUT_OF_MEMORY, False), (OUT_OF_MEMORY, True),
        ("KeyError: 'image'", False)),
    **rows("retries count from the first step on", lambda samples: retrying(*samples),
        ([(5.0, 0.0), (10.0, 3.0), (15.0, 3.0)],), ([(9.9, 3.0), (15.0, 4.0), (25.0, 6.0)],),
        ([(15.0, 4.0), (25.0, 6.0), (35.0, 6.0)],)),
    **rows("memory is full from ninety seven percent on", lambda train: full(train=train), 77.6,
        77.5),
}  # fmt: skip
