from __future__ import annotations

from typing import Any

import pytest

from grpo_doctor.findings.rule import NotApplicable, Passed
from grpo_doctor.findings.rules import gd037_small_micro_batch as rule
from tests.build import TraceBuilder
from tests.unit.findings.example_runs import SETTINGS, run
from tests.unit.findings.recorded import count, found, inside, judged, knob, memory, number

SMALL: dict[str, Any] = {**SETTINGS, "train.micro_batch": 1, "train.grad_accumulation": 8}


def passes(
    busy: float | None,
    *,
    series: str = "gpu.sm_active",
    gib: float = 30.0,
    **knobs: Any,
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
    finding = found(rule, sick())
    assert finding.cost == pytest.approx(3.0 / 9.85 * 0.8, rel=0.02)
    assert number(finding, "one pass") == pytest.approx(0.3, rel=0.02)
    assert number(finding, "GPU memory free") == pytest.approx(100 * (1 - 30 / 80))
    fix = finding.fixes[0]
    assert fix.spelling == "--per_device_train_batch_size 4 --gradient_accumulation_steps 2"
    assert finding.severity == "medium"


def test_utilization_alone_is_weak_evidence() -> None:
    finding = found(rule, passes(60.0, series="gpu.util"))
    assert (finding.severity, finding.cost) == ("low", 0.0)
    assert finding.confidence == 0.5
    assert isinstance(judged(rule, passes(90.0, series="gpu.util")), Passed)


def test_full_memory_and_unknown_use_say_nothing() -> None:
    assert isinstance(judged(rule, passes(20.0, gib=60.0)), Passed)
    assert isinstance(judged(rule, passes(None)), Passed)


def test_one_pass_per_step_can_not_be_fewer() -> None:
    answer = judged(rule, passes(20.0, **knob("train.grad_accumulation", 1)))
    assert isinstance(answer, NotApplicable)


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
    finding = found(rule, build)
    assert number(finding, "of it arithmetic") == pytest.approx(6 * 1e5 * 30 / 1e10)
    assert finding.cost == pytest.approx(3.0 / 9.85 * 0.999 * 0.75, rel=0.03)
    assert finding.fixes[0].predicted is None


def test_on_a_cpu_only_a_prediction_can_tell() -> None:
    build = run(knobs=SMALL, memory_gib=None, config={"device": "cpu"})
    build.series("host.memory_available", "bytes", [0.0, 90.0], [2e9, 2e9])
    assert isinstance(judged(rule, build), Passed)


@pytest.mark.parametrize(
    ("micro", "passes_", "after"),
    [(2, 4, (8, 1)), (3, 4, (6, 2)), (1, 4, (4, 1)), (1, 6, (2, 3)), (4, 2, (8, 1)), (1, 3, None)],
)
def test_passes_are_merged_by_four_up_to_eight_completions_or_else_by_two(
    micro: int, passes_: int, after: tuple[int, int] | None
) -> None:
    knobs: Any = {"train.micro_batch": micro, "train.grad_accumulation": passes_}
    answer = judged(rule, passes(20.0, **knobs))
    if after is None:
        assert isinstance(answer, NotApplicable)
        return
    fix = found(rule, passes(20.0, **knobs)).fixes[0]
    assert fix.spelling == (
        f"--per_device_train_batch_size {after[0]} --gradient_accumulation_steps {after[1]}"
    )


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
    finding = found(rule, build)
    assert number(finding, "of it arithmetic") == pytest.approx(6 * 1e5 * 30 / 1e10)
    assert "A pass takes 1e+03 ms" in finding.cause
