from __future__ import annotations

from typing import Any

from tests.build import TraceBuilder
from tests.unit.findings.example_runs import SETTINGS, run
from tests.unit.findings.recorded import count, inside, knob, memory
from tests.unit.findings.rules.saying import even, named, rows

SMALL: dict[str, Any] = {**SETTINGS, "train.micro_batch": 1, "train.grad_accumulation": 8}


def passes(
    busy: float | None, *, series: str = "gpu.sm_active", gib: float = 30.0, **knobs: Any
) -> TraceBuilder:
    build = memory(run(knobs={**SMALL, **knobs}, memory_gib=None), {"rollout": 70.0, "train": gib})
    inside(build, "train/micro_batch", 2.4, times=8)
    if busy is not None:
        for rank in range(4):
            build.series(series, "%", [0.0, 90.0], [busy, busy], scope="gpu", gpu=f"GPU-{rank}")
    return build


def on_a_cpu_a_pass_that_is_hardly_arithmetic_is(parameters: int) -> TraceBuilder:
    config = {"device": "cpu", "model_parameters": parameters}
    build = run(knobs=SMALL, memory_gib=None, config=config)
    build.series("host.memory_available", "bytes", [0.0, 90.0], [2e9, 2e9])
    inside(build, "train/micro_batch", 2.4, times=8)
    count(build, "train/token_places", 8 * 30.0)
    return build


def on_a_cpu_only_a_prediction_can_tell() -> TraceBuilder:
    build = run(knobs=SMALL, memory_gib=None, config={"device": "cpu"})
    build.series("host.memory_available", "bytes", [0.0, 90.0], [2e9, 2e9])
    return build


def passes_of_transformers_trainers_are_compared() -> TraceBuilder:
    knobs = {**SMALL, "train.micro_batch": 1, "train.grad_accumulation": 4}
    config = {"device": "cpu", "model_parameters": 100_000}
    build = TraceBuilder(knobs=knobs, config=config)
    times = []
    for step in range(6):
        for index in range(4):
            start = 10.0 * step + index
            build.span(0, "train", start, start + 1)
            times.append(start + 0.5)
        build.step(0, step, 10.0 * step, {}, end_s=10.0 * step + 4)
    build.series("train/token_places", "", times, [30.0] * 24, scope="counter", rank=0)
    build.series("host.memory_available", "bytes", [0.0, 90.0], [2e9, 2e9])
    return build


def on_cpu(fixed_s: float, per_place_s: float, *, micro: int = 1) -> TraceBuilder:
    """Eight passes per step of 20 to 40 places: each takes so long, and more for each place."""
    knobs = {**SMALL, "train.micro_batch": micro}
    build = TraceBuilder(knobs=knobs, config={"device": "cpu", "model_parameters": 1000})
    times, places, now = [], [], 0.0
    for step in range(8):
        begin = now
        build.span(0, "rollout", now, now + 2.0)
        now += 2.0
        began = now
        for index in range(8):
            width = 20.0 + 7 * (8 * step + index) % 21
            times.append(now)
            places.append(width)
            seconds = fixed_s + per_place_s * width
            build.span(0, "train/micro_batch", now, now + seconds, depth=2)
            now += seconds
        build.span(0, "train", began, now)
        build.step(0, step, begin, {}, end_s=now)
    build.series("train/token_places", "", times, places, scope="counter", rank=0)
    return build.series("host.memory_available", "bytes", [0.0, now], [2e9, 2e9])


def two_passes_can_be_one() -> TraceBuilder:
    build = memory(
        run(knobs={**SMALL, "train.grad_accumulation": 2}, memory_gib=None), {"train": 30.0}
    )
    inside(build, "train/micro_batch", 2.4, times=2)
    for rank in range(4):
        build.series("gpu.sm_active", "%", [0.0, 90.0], [20.0] * 2, scope="gpu", gpu=f"GPU-{rank}")
    return build


def on_a_cpu_few_completions_with_a_fifth_of(micro: int, places: float) -> TraceBuilder:
    knobs = {**SMALL, "train.micro_batch": micro, "train.grad_accumulation": 4}
    config = {"device": "cpu", "model_parameters": 3_750_000}
    build = even({"rollout": 5.0, "train": 4.5}, knobs=knobs, config=config)
    for number_ in range(4):
        for index in range(4):
            at = 10.0 * number_ + 5.0 + 1.125 * index
            build.span(0, "train/micro_batch", at, at + 1.125, depth=2)
    times = [10.0 * n + 5.0 for n in range(4)]
    build.series("train/token_places", "", times, [places] * 4, scope="counter", rank=0)
    build.series("host.memory_available", "bytes", [0.0, 40.0], [2e9, 2e9])
    return build


RUNS = {
    "sick": lambda: passes(20.0),
    "well": lambda: passes(70.0),
    "utilization alone is weak evidence 1": lambda: passes(60.0, series="gpu.util"),
    "utilization alone is weak evidence 2": lambda: passes(90.0, series="gpu.util"),
    "full memory and unknown use say nothing 1": lambda: passes(20.0, gib=60.0),
    "full memory and unknown use say nothing 2": lambda: passes(None),
    "one pass per step can not be fewer": lambda: passes(20.0,
        **knob("train.grad_accumulation", 1)),
    **rows("passes are merged by four up to eight completions or else", lambda micro,
        passes_: passes(20.0, **{"train.micro_batch": micro, "train.grad_accumulation": passes_}),
        (2, 4), (3, 4), (1, 4), (1, 6), (4, 2), (1, 3)),
    "on a cpu passes whose time is their places stay": lambda: on_cpu(0.001, 0.01),
    **rows("a little of the step is of low gravity", lambda fixed_s: on_cpu(fixed_s, 0.01), 0.05,
        0.1),
    **named(on_a_cpu_a_pass_that_is_hardly_arithmetic_is, 100000, 50000000),
    "on a cpu passes whose time is their own are to be larger 1": lambda: on_cpu(0.3, 0.0001),
    "on a cpu passes whose time is their own are to be larger 2": lambda: on_cpu(0.3, 0.0001,
        micro=2),
    **named(on_a_cpu_few_completions_with_a_fifth_of, (4, 400.0), (5, 400.0), (4, 401.0)),
}  # fmt: skip
