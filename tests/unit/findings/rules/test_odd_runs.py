"""Recordings with little, strange or broken content: no rule may fail on them, or find much."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from grpo_doctor.findings import RunView, run_rules
from tests.build import TraceBuilder
from tests.unit.findings.example_runs import HEALTHY, SETTINGS, run
from tests.unit.findings.recorded import count, inside

COUNTERS = (
    *(f"dataload/{n}" for n in ("read_s", "process_s", "tokenize_s", "join_s", "images")),
    *("dataload/pixels", "dataload/decoded_pixels", "dataload/image_tokens"),
    *("train/tokens", "train/token_places"),
    *("reward/judge_s", "memory/alloc_retries", "reward/timeouts"),
)
MODEL = {
    "model_parameters": 1_000_000, "model_vocab_size": 1000, "model_hidden_size": 64,
    "model_intermediate_size": 128, "model_num_hidden_layers": 2,
}  # fmt: skip
EVERYTHING = {
    **SETTINGS, "train.micro_batch": 2, "train.grad_accumulation": 4, "train.beta": 0.0001,
    "train.num_iterations": 1, "train.gradient_checkpointing": True,
    "rollout.max_completion_length": 64, "rollout.num_generations": 8, "reward.num_workers": 1,
    "reward.timeout_s": 60.0, "eval.steps": 2, "deepspeed.stage": 3, "deepspeed.preset": "zero3",
}  # fmt: skip


def counting(value: float) -> TraceBuilder:
    return _with_counters(run(knobs=EVERYTHING, config=MODEL), value)


def _with_counters(build: TraceBuilder, value: float) -> TraceBuilder:
    for name in ("reward/judge", "logprob/old", "logprob/reference", "train/micro_batch"):
        inside(build, name, 0.1)
    for name in COUNTERS:
        count(build, name, value)
    return build


def died_early() -> TraceBuilder:
    build = TraceBuilder(ranks=3, knobs=EVERYTHING, config=MODEL)
    for rank, steps in ((0, 6), (1, 3), (2, 1)):
        for number in range(steps):
            build.step(rank, number, 10.0 * number, HEALTHY)
        build.open(rank, "reward", 10.0 * steps, 10.0 * steps + 5)
    return build


def nothing_known() -> TraceBuilder:
    build = TraceBuilder(framework="unknown", framework_version=None)
    for number in range(5):
        build.step(0, number, 2.0 * number, {"rollout": 1.0}, end_s=2.0 * number + 1.9)
    return build


def text_for_numbers() -> TraceBuilder:
    knobs = dict.fromkeys(EVERYTHING, "auto")
    return _with_counters(run(knobs=knobs, config=dict.fromkeys(MODEL, "many")), 1.0)


@pytest.mark.parametrize(
    "odd",
    [
        lambda: counting(float("nan")),
        lambda: counting(0.0),
        lambda: counting(1e-300),
        lambda: counting(1e300),
        died_early,
        nothing_known,
        text_for_numbers,
        lambda: run(dict.fromkeys(HEALTHY, 0.0), idle=1.0, knobs=EVERYTHING),
        lambda: run({"reward": 1.0}, ranks=1, knobs={}, memory_gib=None),
        TraceBuilder,
    ],
    ids=["nan", "zero", "tiny", "huge", "died", "unknown", "text", "empty", "one", "nothing"],
)
def test_no_rule_fails(odd: Callable[[], TraceBuilder]) -> None:
    results = run_rules(RunView.of(odd().build()))
    assert results.errors == ()
    every = results.findings + results.passed + results.not_run + results.not_applicable
    assert all(0 <= finding.cost <= 1.001 for _, finding in results.findings)
    assert len({rule.id for rule, _ in every}) == len(every)
