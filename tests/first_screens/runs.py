"""The ten runs: jobs of ms-swift on eight GPUs, each ill in one way, and what is no such job."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from grpo_doctor.trace.model import Exit, Kind, Trace
from tests.build import TraceBuilder
from tests.unit.findings.learners import healthy_metrics

GIB = 2**30
STEPS, RANKS = 24, 8
# More than the steps that are drawn: rules of learning need some.
METRIC_STEPS = 80
USUAL = {
    "dataload": 0.1,
    "rollout": 6.2,
    "reward": 0.4,
    "logprob": 1.3,
    "train": 3.4,
    "optimizer": 0.2,
    "sync": 0.5,
}
SETTINGS: Mapping[str, Any] = {
    "model.name": "Qwen/Qwen2.5-7B-Instruct",
    "deepspeed.preset": "zero2",
    "vllm.use": True,
    "vllm.mode": "colocate",
    "vllm.tensor_parallel_size": 1,
    "vllm.gpu_memory_utilization": 0.5,
    "dataload.num_workers": 4,
    "train.micro_batch": 4,
    "train.grad_accumulation": 4,
    "rollout.num_generations": 8,
}


class Job:
    """A job whose ranks roll out and train for `STEPS` steps and meet at the end of `train`.

    Args:
        phases: seconds per step of every rank.
        late: extra seconds of some ranks.
        spread: how far rollouts of ranks and steps differ, as a share of their length.
        idle: seconds per step in no phase.
    """

    def __init__(
        self,
        phases: Mapping[str, float] = USUAL,
        *,
        late: Mapping[int, Mapping[str, float]] | None = None,
        spread: float = 0.04,
        steps: int = STEPS,
        memory_gib: tuple[float, float] = (66.0, 71.0),
        knobs: Mapping[str, Any] | None = None,
        **facts: Any,
    ) -> None:
        run_facts = {"framework": "ms-swift", "framework_version": "4.6.0", **facts}
        self.build = TraceBuilder(ranks=RANKS, knobs={**SETTINGS, **(knobs or {})}, **run_facts)
        self._draw = random.Random(16)
        self.begins = [0.0]
        for number in range(steps):
            ranks = [
                self._seconds(phases, (late or {}).get(rank, {}), spread) for rank in range(RANKS)
            ]
            self.begins.append(self._step(number, self.begins[-1] + 0.06, ranks))
        self._sample(memory_gib, phases)

    @property
    def end_s(self) -> float:
        """When the last step ended."""
        return self.begins[-1]

    def trace(self, command: str = "swift rlhf --rlhf_type grpo") -> Trace:
        """The recording."""
        trace = self.build.build()
        run = replace(trace.run, id="qwen-grpo", command=tuple(command.split()))
        return replace(trace, run=run)

    def _seconds(
        self, phases: Mapping[str, float], extra: Mapping[str, float], spread: float
    ) -> dict[str, float]:
        varied = {
            name: usual * (1 + (spread if name == "rollout" else 0.01) * self._draw.uniform(-1, 1))
            for name, usual in phases.items()
        }
        return {name: seconds + extra.get(name, 0.0) for name, seconds in varied.items()}

    def _step(self, number: int, begin_s: float, ranks: list[dict[str, float]]) -> float:
        """All meet at the end of `train`; what follows takes each its time. Returns the end."""
        before = [self._until(mine, "train") for mine in ranks]
        meet_s = begin_s + max(before)
        end_s = (
            meet_s + max(sum(mine.values()) - self._until(mine, "train") for mine in ranks) + 0.08
        )
        for rank, mine in enumerate(ranks):
            now = begin_s
            for name, seconds in mine.items():
                until = now + seconds
                if name == "train":
                    until = meet_s + 0.08
                    self.build.collective(rank, number, now + seconds, until)
                self.build.span(rank, name, now, until)
                now = until
            self.build.step(rank, number, begin_s - 0.06, {}, end_s=end_s)
        return end_s

    @staticmethod
    def _until(mine: Mapping[str, float], phase: str) -> float:
        """Seconds up to the end of a phase."""
        names = list(mine)
        return sum(mine[name] for name in names[: names.index(phase) + 1])

    def _sample(self, memory_gib: tuple[float, float], phases: Mapping[str, float]) -> None:
        half = sum(s for name, s in phases.items() if name not in ("train", "optimizer", "sync"))
        times = [t for at in self.begins[:-1] for t in (at, at + half)]
        for rank in range(RANKS):
            gpu = f"GPU-{rank}"
            self.build.gpu(gpu, index=rank)
            values = [gib * GIB for gib in memory_gib] * (len(times) // 2)
            self.build.series("gpu.memory_used", "bytes", times, values, scope="gpu", gpu=gpu)
            busy = [88.0, 96.0] * (len(times) // 2)
            self.build.series("gpu.util", "%", times, busy, scope="gpu", gpu=gpu)
            self.count("rollout/tokens", 41_000.0, rank)

    def count(self, name: str, value: float, rank: int) -> None:
        """A counter with one value in the middle of each step."""
        times = [(a + b) / 2 for a, b in zip(self.begins, self.begins[1:], strict=False)]
        values = [value] * len(times)
        self.build.series(name, "", times, values, scope="counter", rank=rank)


def healthy() -> Trace:
    job = Job()
    learned = healthy_metrics(METRIC_STEPS, np.random.default_rng(16))
    for number in range(METRIC_STEPS):
        row = {name: float(values[number]) for name, values in learned.items()}
        job.build.metrics(number, **row)
    return job.trace()


def slow_reward() -> Trace:
    return Job(late={1: {"reward": 3.9}}).trace()


def always_last() -> Trace:
    """Rank 7's rollouts take 2 s more in every step, while the others spread by as much."""
    return Job(late={7: {"rollout": 2.0}}, spread=0.16).trace()


def offload() -> Trace:
    job = Job({**USUAL, "offload": 2.3}, memory_gib=(38.0, 71.0), knobs={"offload.optimizer": True})
    for rank in range(RANKS):
        job.count("offload/bytes", 14.0 * GIB, rank)
    return job.trace()


def starved() -> Trace:
    return Job({**USUAL, "dataload": 3.1}, knobs={"dataload.num_workers": 0}).trace()


def without_vllm() -> Trace:
    return Job({**USUAL, "rollout": 31.0}, knobs={"vllm.use": False}).trace()


def flat_reward() -> Trace:
    job = Job(knobs={"reward.functions": "accuracy"})
    for step in range(1, 81):
        job.build.metrics(step, reward=0.0, reward_std=0.0, frac_reward_zero_std=1.0)
    return job.trace()


def out_of_memory() -> Trace:
    job = Job(steps=9, memory_gib=(66.0, 79.4), exit=Exit("failed", 1))
    build, at = job.build, job.end_s
    for rank in range(RANKS):
        build.span(rank, "rollout", at, at + 6.0)
        build.span(rank, "train", at + 6.0, at + 8.0)
        build.row(Kind.STEP, rank, "step", at, at + 8.0, depth=0, value=9.0)
    error = "error/train/OutOfMemoryError: CUDA out of memory. Tried to allocate 2.32 GiB"
    build.row(Kind.INSTANT, 3, error, at + 7.9, at + 7.9)
    return job.trace()


def hung() -> Trace:
    """Rank 5 never came back from its reward; the stack unwound when the job was ended."""
    job = Job(steps=14, exit=Exit("hung", 3))
    build, at = job.build, job.end_s
    for rank in range(RANKS):
        build.span(rank, "rollout", at, at + 6.2)
        build.span(rank, "reward" if rank == 5 else "logprob", at + 6.2, at + 190.0)
        build.row(Kind.STEP, rank, "step", at, at + 190.0, depth=0, value=14.0)
    return job.trace("swift rlhf --rlhf_type grpo --reward_funcs judge")


def no_phases() -> Trace:
    names = {"framework": "unknown", "framework_version": None}
    build = TraceBuilder(ranks=0, hosts=["node-1"], **names)  # type: ignore[arg-type]
    times = [10.0 * n for n in range(30)]
    build.series("job.cpu", "%", times, [310.0] * 30)
    build.series("job.rss", "bytes", times, [21.4 * GIB] * 30)
    build.series("job.processes", "count", times, [9.0] * 30)
    build.series("host.cpu", "%", times, [24.0] * 30)
    build.gpu("GPU-0").series("gpu.util", "%", times, [61.0] * 30, scope="gpu", gpu="GPU-0")
    trace = build.build()
    command = ("python3", "my_grpo.py")
    return replace(
        trace, run=replace(trace.run, id="mine", command=command, duration_ns=300 * 10**9)
    )
