"""Runs for tests of models: a step's phases on one rank, with counters and settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from grpo_doctor.analysis import analyse
from grpo_doctor.whatif import Prediction, Withheld, build_model, predict_settings
from grpo_doctor.whatif.models.cost_model import knob
from tests.build import TraceBuilder

STEPS, PACE = 6, 20.0
IN_TRAINER = {"dataload": 4.0, "train": 6.0}
BATCHES = {"train.micro_batch": 2, "train.grad_accumulation": 4}
SLEEP, WORKERS = "vllm.sleep_level", "reward.num_workers"
RECOMPUTES, LONGEST = "train.gradient_checkpointing", "rollout.max_completion_length"
RECOMPUTED = {RECOMPUTES: True, "train.type": "full"}
# Longest completions have 100 tokens, where a model asks.
METRICS = {"completions/max_length": 100.0}


def run(
    phases: Mapping[str, float],
    knobs: Mapping[str, Any] | None = None,
    counters: Mapping[str, float] | None = None,
    *,
    ranks: int = 1,
    metrics: Mapping[str, float] | None = None,
    **facts: Any,
) -> TraceBuilder:
    """Steps whose phases follow each other, `a/b` inside an `a` of the same length; each counter
    has its value once per step and rank."""
    build = TraceBuilder(ranks=ranks, knobs=knobs or {}, **facts)
    for number in range(STEPS):
        for rank in range(ranks):
            now = PACE * number
            for name, seconds in phases.items():
                outer = name.partition("/")[0]
                build.span(rank, outer, now, now + seconds)
                if outer != name:
                    build.span(rank, name, now, now + seconds, depth=2)
                now += seconds
            build.step(rank, number, PACE * number, {}, end_s=now)
        if metrics:
            build.metrics(number, **metrics)
    times = [PACE * number + 0.01 for number in range(STEPS)]
    for name, value in (counters or {}).items():
        for rank in range(ranks):
            build.series(name, "", times, [value] * STEPS, scope="counter", rank=rank)
    return build


def what_if(build: TraceBuilder, **after: Any) -> Prediction | Withheld:
    """What is said of other settings; dots in names are spelled `__`."""
    analysis = analyse(build.build())
    settings = {name.replace("__", "."): value for name, value in after.items()}
    before = {name: knob(analysis, name) for name in settings}
    return predict_settings(analysis, build_model(analysis), before, settings)


def mid(build: TraceBuilder, **after: Any) -> float:
    """The predicted change in percent."""
    answer = what_if(build, **after)
    assert isinstance(answer, Prediction), answer
    assert answer.low <= answer.mid <= answer.high
    return round(answer.mid, 6)


def reason(build: TraceBuilder, **after: Any) -> str:
    """Why nothing is said."""
    answer = what_if(build, **after)
    assert isinstance(answer, Withheld), answer
    return answer.reason
