"""Recordings that lack nearly everything, or hold nonsense: rules say so and never fail."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from grpo_doctor.findings import RunView, run_rules
from grpo_doctor.findings.rule import Finding
from tests.build import TraceBuilder
from tests.unit.findings.recorded import inside
from tests.unit.findings.registry import EXAMPLES
from tests.unit.findings.rules.saying import HEALTHY, SETTINGS, run

COUNTERS = (
    "engine/running_requests", "engine/running_requests_peak", "engine/running_requests_mean",
    "engine/waiting_requests_mean", "engine/waiting_requests_peak", "engine/kv_cache_peak_pct",
    "engine/preemptions", "engine/prompt_tokens", "engine/generated_tokens", "engine/steps",
    "offload/bytes", "gc/seconds", "gc/longest_s", "rollout/tokens",
)  # fmt: skip
MORE = (
    *(f"dataload/{n}" for n in ("read_s", "process_s", "tokenize_s", "join_s", "images", "pixels")),
    "dataload/image_tokens", "train/tokens", "train/token_places", "reward/judge_s",
    "memory/alloc_retries", "reward/timeouts",
)  # fmt: skip
SPANS = ("reward/judge", "logprob/old", "logprob/reference", "train/micro_batch")
SAMPLES = ("rank.cpu_wait", "rank.cpu", "rank.processors")
GPU_SAMPLES = ("gpu.util", "gpu.throttle", "gpu.sm_clock", "gpu.power", "gpu.pcie_rx")
KNOBS: dict[str, object] = {
    **SETTINGS, "rollout.num_generations": 8, "vllm.sleep_level": 1, "train.type": "lora",
    "train.micro_batch": 2, "train.grad_accumulation": 4, "train.beta": 0.0001,
    "train.num_iterations": 1, "train.gradient_checkpointing": True,
    "rollout.max_completion_length": 64, "reward.num_workers": 1, "reward.timeout_s": 60.0,
    "eval.steps": 2, "deepspeed.stage": 3, "deepspeed.preset": "zero3",
}  # fmt: skip
MODEL: dict[str, object] = {
    "model_parameters": 1_000_000, "model_vocab_size": 1000, "model_hidden_size": 64,
    "model_intermediate_size": 128, "model_num_hidden_layers": 2,
}  # fmt: skip


def filled(
    number: float, knobs: dict[str, object] = KNOBS, config: dict[str, object] = MODEL
) -> TraceBuilder:
    """Every counter and sample has this one value throughout."""
    build = run(HEALTHY, knobs=knobs, config=config)
    for name in SPANS:
        inside(build, name, 0.1)
    times = [float(n) for n in range(60)]
    for rank in range(4):
        for name in COUNTERS + MORE:
            build.series(name, "", times, [number] * 60, scope="counter", rank=rank)
        for name in SAMPLES:
            build.series(name, "", times, [number] * 60, scope="rank", rank=rank)
        for name in GPU_SAMPLES:
            build.series(name, "", times, [number] * 60, scope="gpu", gpu=f"GPU-{rank}")
    return build


def stepping(ranks: int, steps: int) -> TraceBuilder:
    build = TraceBuilder(ranks=ranks, knobs=KNOBS)
    for number in range(steps):
        for rank in range(ranks):
            build.step(rank, number, 10.0 * number, HEALTHY)
    return build


def bare(steps: int) -> TraceBuilder:
    build = TraceBuilder(ranks=2, framework="unknown", framework_version=None)
    for number in range(steps):
        for rank in (0, 1):
            build.step(rank, number, 10.0 * number, {}, end_s=10.0 * number + 9)
    return build


def dying() -> TraceBuilder:
    """Ranks that end at different steps, one of them in the middle of a phase."""
    build = TraceBuilder(ranks=3, knobs=KNOBS)
    for rank, steps in enumerate((6, 4, 5)):
        for number in range(steps):
            build.step(rank, number, 10.0 * number, HEALTHY)
    return build.open(1, "rollout", 41.0, 58.0)


def jumping() -> TraceBuilder:
    """A clock that jumps back, and counters from before the run."""
    build = stepping(2, 6)
    build.span(0, "sync/gather", 30.0, 29.0)
    for name in COUNTERS:
        build.series(name, "", [-5.0, 20.0, 10.0], [1.0, 2.0, 3.0], scope="counter", rank=0)
    return build


RUNS: dict[str, Callable[[], TraceBuilder]] = {
    "nothing at all": lambda: TraceBuilder(ranks=1), "one step": lambda: stepping(2, 1),
    "one rank": lambda: stepping(1, 5), "steps without phases": lambda: bare(5),
    "ranks that died at different steps": dying, "a clock that jumps": jumping,
    "all NaN": lambda: filled(math.nan), "all infinite": lambda: filled(math.inf),
    "all nought": lambda: filled(0.0), "all below nought": lambda: filled(-1.0),
    "all huge": lambda: filled(1e308), "all tiny": lambda: filled(1e-300),
    "text for numbers": lambda: filled(1.0, dict.fromkeys(KNOBS, "auto"),
        dict.fromkeys(MODEL, "many")),
    "phases of no time": lambda: run(dict.fromkeys(HEALTHY, 0.0), idle=1.0, knobs=KNOBS),
    "rewards alone": lambda: run({"reward": 1.0}, ranks=1, knobs={}, memory_gib=None),
}  # fmt: skip
SENSELESS = ("text for numbers",)  # more than a step in each step
LOPSIDED = ("all tiny", "rewards alone")  # the times of all else are nothing beside those of one


@pytest.mark.parametrize("name", RUNS)
def test_no_rule_fails(name: str) -> None:
    results = run_rules(RunView.of(RUNS[name]().build()))
    assert results.errors == ()
    every = results.findings + results.passed + results.not_run + results.not_applicable
    if name not in SENSELESS:
        assert all(0 <= finding.cost <= 1.001 for _, finding in results.findings)
    assert len({rule.id for rule, _ in every}) == len(every)


@pytest.mark.parametrize("name", [n for n in RUNS if n not in (*SENSELESS, *LOPSIDED)])
def test_nothing_of_high_severity_is_said_of_nonsense(name: str) -> None:
    results = run_rules(RunView.of(RUNS[name]().build()))
    assert [rule.id for rule, finding in results.findings if finding.severity == "high"] == []


def test_runs_of_two_steps_are_not_judged() -> None:
    assert run_rules(RunView.of(stepping(1, 2).build())).findings == ()


@pytest.mark.parametrize("rule", EXAMPLES)
def test_numbers_of_findings_are_numbers(rule: str) -> None:
    results = run_rules(RunView.of(EXAMPLES[rule][0]().build()))
    for _, finding in results.findings:
        assert isinstance(finding, Finding)
        assert 0 <= finding.cost <= 1
        assert 0 < finding.confidence <= 1
        assert all(math.isfinite(e.value) for e in finding.evidence if isinstance(e.value, float))
