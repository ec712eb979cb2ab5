from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from grpo_doctor.compare.metrics import metric_changes
from grpo_doctor_reports.schema.compare import MetricChange
from tests.build import TraceBuilder


def runs(before: Sequence[float], after: Sequence[float], name: str = "reward") -> MetricChange:
    """The comparison of one metric of two runs."""
    made = []
    for values in (before, after):
        build = TraceBuilder(ranks=1)
        for step, value in enumerate(values):
            build.step(0, step, float(step), {"train": 1.0})
            build.metrics(step, **{name: value})
        made.append(build.build())
    (change,) = metric_changes(*made)
    return change


def noisy(level: float, count: int, seed: int) -> list[float]:
    return list(np.random.default_rng(seed).normal(level, 0.1, count))


def test_equal_curves_are_identical() -> None:
    curve = noisy(0.5, 20, 1)
    assert runs(curve, curve).state == "identical"


def test_the_first_bit_that_differs_is_exact() -> None:
    curve = noisy(0.5, 20, 1)
    change = runs(curve, [*curve[:12], *(value + 1e-12 for value in curve[12:])])
    assert (change.state, change.step) == ("parted", 12)
    assert change.note == "bit-identical until step 11"


def test_a_rare_event_in_one_run_is_no_parting() -> None:
    rare = [0.0] * 20
    rare[7] = 0.25
    assert runs([0.0] * 20, rare, "clip_ratio").state == "same"


def test_other_noise_around_the_same_curve_is_the_same() -> None:
    states = [runs(noisy(0.5, 60, s), noisy(0.5, 60, s + 1000)).state for s in range(30)]
    assert states.count("same") >= 29


def test_a_curve_that_leaves_is_dated() -> None:
    for seed in range(10):
        after = noisy(0.5, 60, seed + 1000)
        after[30:] = [value + 0.6 for value in after[30:]]
        change = runs(noisy(0.5, 60, seed), after)
        assert change.state == "parted"
        assert change.step is not None
        assert 30 <= change.step <= 36


def test_a_spike_that_comes_back_is_no_parting() -> None:
    after = noisy(0.5, 60, 1001)
    after[20:24] = [5.0] * 4
    assert runs(noisy(0.5, 60, 1), after).state == "same"


def test_few_points_are_no_evidence() -> None:
    assert runs([1, 2, 3], [2, 3, 4]).state == "not enough evidence"


def test_clocks_are_no_learning_curves() -> None:
    made = []
    for seed in (1, 2):
        build = TraceBuilder(ranks=1)
        for step, value in enumerate(noisy(1, 12, seed)):
            build.step(0, step, float(step), {"train": 1.0}).metrics(step, step_time=value)
        made.append(build.build())
    assert metric_changes(*made) == []


@pytest.mark.parametrize(
    ("before", "after", "note"),
    [
        ([1, 2] * 4, [1, 2] * 4, "equal in all 8 common steps"),
        ([1, 2] * 3 + [1], [1, 2] * 3 + [3], "7 steps in common; needs 8"),
        ([1, 2] * 4, [1, 2] * 3 + [1, 3], "bit-identical until step 6"),
        ([1, 2] * 4, [1, 2, *[9] * 6], "bit-identical until step 1"),
        ([1, 2] * 4, [1, *[9] * 7], "diverged from the first step"),
        # Standing still at the same value is no equality to the last bit.
        ([1] * 20, [*[1] * 10, *[9] * 10], "diverged permanently at step 10"),
        ([1] * 20, [*[1] * 11, *[9] * 9], "the difference is within the noise"),
    ],
)
def test_what_is_said_of_short_curves(before: list[float], after: list[float], note: str) -> None:
    assert runs(before, after).note == note


def test_metrics_that_part_come_first_then_by_step_and_name() -> None:
    made = []
    for value in (0, 9):
        build = TraceBuilder(ranks=1)
        for step in range(12):
            curve = float(step % 3)
            build.step(0, step, float(step), {"train": 1.0})
            build.metrics(
                step, same=curve, early=curve + value * (step > 3),
                later=curve + value * (step > 6), also=curve + value * (step > 6),
                noisy=curve + (value and 0.001 * step),
            )  # fmt: skip
        made.append(build.build())
    order = [(m.name, m.state) for m in metric_changes(*made)]
    assert order == [
        ("early", "parted"), ("also", "parted"), ("later", "parted"), ("same", "identical"),
        ("noisy", "same"),
    ]  # fmt: skip
