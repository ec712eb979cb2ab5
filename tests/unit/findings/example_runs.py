"""One run that has each rule's problem, and one that does not; all in a few spans."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from grpo_doctor.trace.model import Trace
from tests.build import TraceBuilder

GIB = 2**30
STEPS = 6
HEALTHY = {
    "dataload": 0.1, "rollout": 5.0, "reward": 0.2, "logprob": 1.0, "train": 3.0, "optimizer": 0.2,
    "sync": 0.3,
}  # fmt: skip
SETTINGS = {"vllm.use": True, "vllm.mode": "colocate", "dataload.num_workers": 4}


def run(
    phases: Mapping[str, float] = HEALTHY,
    *,
    ranks: int = 4,
    slow: Mapping[int, Mapping[str, float]] | None = None,
    knobs: Mapping[str, Any] = SETTINGS,
    idle: float = 0.05,
    memory_gib: tuple[float, float] | None = (70.0, 72.0),
    **facts: Any,
) -> TraceBuilder:
    """Ranks that meet in one collective at the end of `train`; the slowest sets the pace.

    Args:
        phases: seconds per step of every rank.
        slow: extra seconds of some ranks.
        idle: seconds per step in no phase.
        memory_gib: used GPU memory (in rollouts, in training); None: no GPU.
    """
    facts = {"framework": "ms-swift", "framework_version": "4.6.0", **facts}
    build = TraceBuilder(ranks=ranks, knobs=knobs, **facts)
    extra = slow or {}
    longest = max((sum(more.values()) for more in extra.values()), default=0.0)
    starts = [0.0]
    for number in range(STEPS):
        pace = 1 + 0.01 * (number % 3)
        for rank in range(ranks):
            mine = {n: s + extra.get(rank, {}).get(n, 0.0) for n, s in phases.items()}
            waits = longest - sum(mine.values()) + sum(phases.values())
            end = step(build, rank, number, starts[-1] + idle, mine, waits, pace)
            build.step(rank, number, starts[-1], {}, end_s=end)
        starts.append(starts[-1] + idle + pace * (sum(phases.values()) + longest))
    if memory_gib is not None:
        before_training = sum(s for n, s in phases.items() if n not in ("train", "optimizer"))
        times = [t for at in starts[:-1] for t in (at, at + before_training)]
        values = [gib * GIB for gib in memory_gib] * STEPS
        for rank in range(ranks):
            gpu = f"GPU-{rank}"
            build.gpu(gpu, index=rank)
            build.series("gpu.memory_used", "bytes", times, values, scope="gpu", gpu=gpu)
    return build


def step(
    build: TraceBuilder,
    rank: int,
    number: int,
    now: float,
    phases: Mapping[str, float],
    waits: float,
    pace: float,
) -> float:
    """One rank's phases; returns the moment at which they end."""
    for name, usual in phases.items():
        seconds = usual * pace
        if name == "train":
            arrives = now + seconds * 0.9
            seconds += waits * pace
            build.collective(rank, number, arrives, now + seconds)
        build.span(rank, name, now, now + seconds)
        now += seconds
    return now


OFFLOADED = {**HEALTHY, "offload": 2.0}


def offloaded(memory_gib: tuple[float, float] | None = (40.0, 72.0)) -> TraceBuilder:
    build = run(
        OFFLOADED,
        knobs={**SETTINGS, "offload.optimizer": True, "offload.model": False},
        memory_gib=memory_gib,
    )
    times = [10.0 * n for n in range(STEPS)]
    for rank in range(4):
        build.series("offload/bytes", "", times, [20.0 * GIB] * STEPS, scope="counter", rank=rank)
    return build


def starved(workers: int = 0) -> TraceBuilder:
    return run({**HEALTHY, "dataload": 3.0}, knobs={**SETTINGS, "dataload.num_workers": workers})


def without_vllm(**facts: Any) -> TraceBuilder:
    return run(knobs={**SETTINGS, "vllm.use": False}, **facts)


def straggling() -> TraceBuilder:
    return run(slow={2: {"rollout": 2.0}})


def empty_gpus() -> TraceBuilder:
    knobs = {
        **SETTINGS,
        "vllm.gpu_memory_utilization": 0.3,
        "train.micro_batch": 2,
        "train.grad_accumulation": 8,
    }
    return run(knobs=knobs, memory_gib=(30.0, 35.0))


# Rule id: (a run that has it, a run that has not).
EXAMPLES: dict[str, tuple[Callable[[], TraceBuilder], Callable[[], TraceBuilder]]] = {
    "GD001": (offloaded, lambda: run({**HEALTHY, "offload": 0.1})), "GD002": (starved, run),
    "GD003": (without_vllm,
        lambda: run({**HEALTHY, "rollout": 1.0}, knobs={**SETTINGS, "vllm.use": False})),
    "GD004": (straggling, run), "GD005": (lambda: run(idle=1.5), run), "GD006": (empty_gpus, run),
}  # fmt: skip


def healthy() -> Trace:
    return run().build()
