from __future__ import annotations

from typing import Any

import pytest

from grpo_doctor.findings.rule import Passed
from grpo_doctor.findings.rules import gd040_memory_nearly_full as rule
from grpo_doctor.trace.model import Exit, Kind
from tests.build import TraceBuilder
from tests.unit.findings.example_runs import SETTINGS, run
from tests.unit.findings.recorded import count, finding_by, judged, knob, memory, number

BATCH: dict[str, Any] = {**SETTINGS, "train.micro_batch": 4, "train.grad_accumulation": 2}


def full(
    rollout: float = 60.0, train: float = 79.0, retries: float = 0.0, **knobs: Any
) -> TraceBuilder:
    build = run(knobs={**BATCH, **knobs}, memory_gib=None)
    memory(build, {"rollout": rollout, "train": train})
    return count(build, "memory/alloc_retries", lambda _, step: 5 + retries * step)


def sick() -> TraceBuilder:
    return full(retries=2.0)


def well() -> TraceBuilder:
    return full(train=72.0)


def test_retries_in_most_steps_are_grave() -> None:
    finding = finding_by(rule, sick())
    assert finding.severity == "high"
    assert number(finding, "peak of the most-used GPU") == 79.0
    assert number(finding, "steps with a retry") > 50
    assert finding.phases == ("train",)
    fix = finding.fixes[0]
    assert fix.spelling == "--per_device_train_batch_size 2 --gradient_accumulation_steps 4"


def test_retries_before_the_first_step_that_counts_are_a_start() -> None:
    answer = judged(rule, full(train=72.0))
    assert isinstance(answer, Passed)
    assert "no retries" in answer.note


def test_a_full_gpu_without_retries_is_a_careful_note() -> None:
    finding = finding_by(rule, full())
    assert (finding.severity, finding.confidence) == ("low", 0.5)


def test_a_cache_that_fills_the_gpu_in_rollouts_is_as_told() -> None:
    assert isinstance(judged(rule, full(rollout=79.0, train=60.0)), Passed)


def test_where_memory_ran_out_decides_what_to_change() -> None:
    build = TraceBuilder(
        knobs={**SETTINGS, "vllm.gpu_memory_utilization": 0.9},
        framework="ms-swift",
        framework_version="4.6.0",
    )
    build.span(0, "rollout", 0.0, 5.0)
    build.series("memory/out_of_memory/rollout", "", [5.0], [1e9], scope="counter", rank=0)
    finding = finding_by(rule, build)
    assert finding.severity == "high"
    assert finding.headline == "Memory ran out in rollout"
    assert finding.fixes[0].spelling == "--vllm_gpu_memory_utilization 0.8"


def test_training_that_ran_out_under_zero_2_is_sent_to_zero_3() -> None:
    build = full(retries=2.0, **knob("deepspeed.preset", "zero2"))
    build.series("memory/out_of_memory/train", "", [50.0], [0.0], scope="counter", rank=1)
    finding = finding_by(rule, build)
    assert "--deepspeed zero3" in [fix.spelling for fix in finding.fixes]
    assert finding.fixes[0].knob == "train.micro_batch"


def test_unknown_values_are_no_retries() -> None:
    build = run(knobs=BATCH)
    count(build, "memory/alloc_retries", float("nan"), ranks=[0])
    count(build, "memory/alloc_retries", 7.0, ranks=[1])
    assert isinstance(judged(rule, build), Passed)


@pytest.mark.parametrize("steps", [0, 1])
def test_a_run_without_steps_is_judged_by_its_memory(steps: int) -> None:
    build = TraceBuilder(knobs=BATCH)
    for step in range(steps):
        build.step(0, step, float(step), {"train": 1.0})
    build.span(0, "train", 1.0 * steps, 1.0 * steps + 5)
    build.gpu("GPU-0").series(
        "gpu.memory_used", "bytes", [0.0, 5.0], [10 * 2**30, 79 * 2**30], scope="gpu", gpu="GPU-0"
    )
    assert finding_by(rule, build).fixes


OUT_OF_MEMORY = "OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB"


@pytest.mark.parametrize(
    ("error", "ran_out", "reported"),
    [
        (OUT_OF_MEMORY, False, False),  # GD074 tells it, with the same advice
        (OUT_OF_MEMORY, True, True),
        ("KeyError: 'image'", False, True),
    ],
)
def test_a_run_that_memory_ended_is_told_of_once(error: str, ran_out: bool, reported: bool) -> None:
    build = full()
    build.exit = Exit(state="failed", code=1)
    build.row(Kind.INSTANT, 1, f"error/train/{error}", 50.0, 50.0)
    if ran_out:
        build.series("memory/out_of_memory/train", "", [50.0], [1e9], scope="counter", rank=1)
    if reported:
        assert finding_by(rule, build).phases == ("train",)
    else:
        answer = judged(rule, build)
        assert isinstance(answer, Passed)
        assert answer.note == "99% of the most-used GPU's memory: see GD074"


def retrying(*samples: tuple[float, float]) -> TraceBuilder:
    """Four steps from the tenth second on, and what a counter of the allocator said when."""
    build = TraceBuilder(knobs=BATCH)
    for step in range(4):
        build.step(0, step, 10.0 * (step + 1), {"train": 10.0})
    times, values = [at for at, _ in samples], [count for _, count in samples]
    return build.series("memory/alloc_retries", "", times, values, scope="counter", rank=0)


@pytest.mark.parametrize(
    ("samples", "retries", "steps_pct"),
    [
        ([(5.0, 0.0), (10.0, 3.0), (15.0, 3.0)], 3, 50),  # the first step counts from its begin
        ([(9.9, 3.0), (15.0, 4.0), (25.0, 6.0)], 3, 100),
        ([(15.0, 4.0), (25.0, 6.0), (35.0, 6.0)], 2, 100 / 3),
    ],
)
def test_retries_count_from_the_first_step_on(
    samples: list[tuple[float, float]], retries: int, steps_pct: float
) -> None:
    finding = finding_by(rule, retrying(*samples))
    assert number(finding, "retries of the allocator") == retries
    assert number(finding, "steps with a retry") == pytest.approx(steps_pct)
    assert finding.severity == ("high" if steps_pct >= 50 else "medium")


@pytest.mark.parametrize(("train", "is_full"), [(77.6, True), (77.5, False)])
def test_memory_is_full_from_ninety_seven_percent_on(train: float, is_full: bool) -> None:
    if is_full:
        assert finding_by(rule, full(train=train)).severity == "low"
    else:
        answer = judged(rule, full(train=train))
        assert answer == Passed("the most-used GPU reaches 97% of its memory, no retries")
