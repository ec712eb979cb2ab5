from __future__ import annotations

from typing import Any

import pytest

from grpo_doctor.findings.rule import Finding, Passed
from grpo_doctor.findings.rules import gd037_small_micro_batch as rule
from tests.build import TraceBuilder
from tests.unit.findings.example_runs import SETTINGS, run
from tests.unit.findings.recorded import count, finding_by, inside, judged, knob, memory, number
from tests.unit.findings.rules.saying import even, rows

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


def sick() -> TraceBuilder:
    return passes(20.0)


def well() -> TraceBuilder:
    return passes(70.0)


def test_idle_units_and_free_memory_ask_for_larger_passes() -> None:
    finding = finding_by(rule, sick())
    assert finding.cost == pytest.approx(3.0 / 9.85 * 0.8, rel=0.02)
    assert number(finding, "one pass") == pytest.approx(0.3, rel=0.02)
    assert number(finding, "GPU memory free") == pytest.approx(100 * (1 - 30 / 80))
    fix = finding.fixes[0]
    assert fix.spelling == "--per_device_train_batch_size 4 --gradient_accumulation_steps 2"
    assert finding.severity == "medium"


@pytest.mark.parametrize(("parameters", "is_found"), [(100_000, True), (50_000_000, False)])
def test_on_a_cpu_a_pass_that_is_hardly_arithmetic_is_too_small(
    parameters: int, is_found: bool
) -> None:
    config = {"device": "cpu", "model_parameters": parameters}
    build = run(knobs=SMALL, memory_gib=None, config=config)
    build.series("host.memory_available", "bytes", [0.0, 90.0], [2e9, 2e9])
    inside(build, "train/micro_batch", 2.4, times=8)
    count(build, "train/token_places", 8 * 30.0)
    if not is_found:
        assert isinstance(judged(rule, build), Passed)
        return
    finding = finding_by(rule, build)
    assert number(finding, "of which arithmetic") == pytest.approx(6 * 1e5 * 30 / 1e10)
    assert "8 passes of 1 completion. A pass takes" in finding.cause
    assert finding.cost == pytest.approx(3.0 / 9.85 * 0.999 * 0.75, rel=0.03)
    assert finding.fixes[0].predicted is None


def on_a_cpu_only_a_prediction_can_tell() -> TraceBuilder:
    build = run(knobs=SMALL, memory_gib=None, config={"device": "cpu"})
    build.series("host.memory_available", "bytes", [0.0, 90.0], [2e9, 2e9])
    return build


def test_passes_of_transformers_trainers_are_compared_with_their_arithmetic_too() -> None:
    """They have a `train` span for each micro-batch, and no spans within."""
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
    finding = finding_by(rule, build)
    assert number(finding, "of which arithmetic") == pytest.approx(6 * 1e5 * 30 / 1e10)
    assert "A pass takes 1e+03 ms" in finding.cause


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


def test_on_a_cpu_passes_whose_time_is_their_own_are_to_be_larger() -> None:
    finding = finding_by(rule, on_cpu(0.3, 0.0001))
    assert finding.severity == "medium"
    assert finding.cause == (
        "An optimizer step is 8 passes of 1 completion, and much of a pass does not depend on its "
        "size."
    )
    assert "8 passes of 2 completions, and" in finding_by(rule, on_cpu(0.3, 0.0001, micro=2)).cause
    predicted = finding.fixes[0].predicted
    assert predicted is not None
    assert finding.cost == pytest.approx(-predicted.mid / 100)
    # Of 4.4 s per step 2.4 s are fixed; of two passes a quarter of that.
    assert finding.cost == pytest.approx(1.8 / 4.4, rel=0.1)


def two_passes_can_be_one() -> TraceBuilder:
    build = memory(
        run(knobs={**SMALL, "train.grad_accumulation": 2}, memory_gib=None), {"train": 30.0}
    )
    inside(build, "train/micro_batch", 2.4, times=2)
    for rank in range(4):
        build.series("gpu.sm_active", "%", [0.0, 90.0], [20.0] * 2, scope="gpu", gpu=f"GPU-{rank}")
    return build


@pytest.mark.parametrize(
    ("micro", "places", "is_found"), [(4, 400.0, True), (5, 400.0, False), (4, 401.0, False)]
)
def test_on_a_cpu_few_completions_with_a_fifth_of_arithmetic_are_too_small(
    micro: int, places: float, is_found: bool
) -> None:
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
    answer = judged(rule, build)
    if is_found:
        assert isinstance(answer, Finding)
        assert answer.severity == "medium"
        # A pass of 1.125 s has 0.225 s of arithmetic; two of its size take its rest away once.
        assert answer.cost == pytest.approx(0.45 * 0.8 / 2)
    else:
        assert isinstance(answer, Passed)
        assert answer.note.startswith("the arithmetic of a pass takes at least 20% of it")


RUNS = {
    "utilization alone is weak evidence 1": lambda: passes(60.0, series="gpu.util"),
    "utilization alone is weak evidence 2": lambda: passes(90.0, series="gpu.util"),
    "full memory and unknown use say nothing 1": lambda: passes(20.0, gib=60.0),
    "full memory and unknown use say nothing 2": lambda: passes(None),
    "one pass per step can not be fewer": lambda: passes(
        20.0, **knob("train.grad_accumulation", 1)
    ),
    **rows(
        "passes are merged by four up to eight completions or else",
        lambda micro, passes_: passes(
            20.0, **{"train.micro_batch": micro, "train.grad_accumulation": passes_}
        ),
        (2, 4),
        (3, 4),
        (1, 4),
        (1, 6),
        (4, 2),
        (1, 3),
    ),
    "on a cpu passes whose time is their places stay": lambda: on_cpu(0.001, 0.01),
    **rows(
        "a little of the step is of low gravity", lambda fixed_s: on_cpu(fixed_s, 0.01), 0.05, 0.1
    ),
}
