"""Recordings that lack nearly everything, or hold nonsense: rules say so and never fail."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from grpo_doctor.findings import RunView, run_rules
from grpo_doctor.findings.rule import Finding
from tests.build import TraceBuilder
from tests.unit.findings.registry import EXAMPLES
from tests.unit.findings.rules.saying import HEALTHY, SETTINGS, run

COUNTERS = (
    "engine/running_requests", "engine/running_requests_peak", "engine/running_requests_mean",
    "engine/waiting_requests_mean", "engine/waiting_requests_peak", "engine/kv_cache_peak_pct",
    "engine/preemptions", "engine/prompt_tokens", "engine/generated_tokens", "engine/steps",
    "offload/bytes", "gc/seconds", "gc/longest_s", "rollout/tokens",
)  # fmt: skip
SAMPLES = ("rank.cpu_wait", "rank.cpu", "rank.processors")
GPU_SAMPLES = ("gpu.util", "gpu.throttle", "gpu.sm_clock", "gpu.power", "gpu.pcie_rx")
KNOBS = {**SETTINGS, "rollout.num_generations": 8, "vllm.sleep_level": 1, "train.type": "lora"}


def filled(number: float, knobs: dict[str, object] = KNOBS) -> TraceBuilder:
    """Every counter and sample has this one value throughout."""
    build = run(HEALTHY, knobs=knobs)
    times = [float(n) for n in range(60)]
    for rank in range(4):
        for name in COUNTERS:
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
    "all huge": lambda: filled(1e308),
}  # fmt: skip


@pytest.mark.parametrize("name", RUNS)
def test_no_rule_fails(name: str) -> None:
    results = run_rules(RunView.of(RUNS[name]().build()))
    assert results.errors == ()


@pytest.mark.parametrize("name", [n for n in RUNS if n not in ("all huge", "all infinite")])
def test_nothing_grave_is_said_of_nonsense(name: str) -> None:
    results = run_rules(RunView.of(RUNS[name]().build()))
    assert [rule.id for rule, finding in results.findings if finding.severity == "high"] == []


@pytest.mark.parametrize("rule", EXAMPLES)
def test_numbers_of_findings_are_numbers(rule: str) -> None:
    results = run_rules(RunView.of(EXAMPLES[rule][0]().build()))
    for _, finding in results.findings:
        assert isinstance(finding, Finding)
        assert 0 <= finding.cost <= 1
        assert 0 < finding.confidence <= 1
        assert all(math.isfinite(e.value) for e in finding.evidence if isinstance(e.value, float))
