from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from grpo_doctor.analysis.learning import components, curve, shape, spellings
from grpo_doctor.analysis.learning.curves import Curve
from tests.build import TraceBuilder


def made(values: Sequence[float]) -> Curve:
    return Curve("x", np.arange(len(values)), np.array(values))


@pytest.mark.parametrize(("framework", "metric", "first"), [
    ("bundled", "length", "completions/mean_length"),
    ("ms-swift", "clip", "clip_ratio/region_mean"),
    ("verl", "reward", "critic/score/mean"),
    ("openrlhf", "reward", "rollout/reward_mean"),
])  # fmt: skip
def test_a_metric_has_its_frameworks_name(framework: str, metric: str, first: str) -> None:
    assert spellings(metric, framework)[0] == first


def test_a_metric_is_found_under_any_frameworks_name() -> None:
    trace = TraceBuilder(framework="unknown").metrics(1, **{"actor/entropy": 0.5}).build()
    entropy = curve(trace, "entropy")
    assert entropy is not None
    assert (entropy.key, entropy.values.tolist()) == ("actor/entropy", [0.5])
    assert curve(trace, "kl") is None


def test_nan_is_kept_and_what_was_not_said_is_not() -> None:
    build = TraceBuilder()
    build.metrics(1, reward=math.nan, loss=1.0).metrics(2, loss=1.0).metrics(3, reward=math.inf)
    entropy = curve(build.build(), "reward")
    assert entropy is not None
    assert entropy.steps.tolist() == [1, 3]
    assert entropy.bad.all()
    assert len(entropy.finite) == 0


def test_components_of_old_and_new_names() -> None:
    build = TraceBuilder()
    build.metrics(1, **{"rewards/a/mean": 1.0, "rewards/a/std": 0.5, "rewards/b": 2.0})
    build.metrics(2, **{"rewards/missing_ratio": 0.5})
    curves = components(build.build())
    assert sorted(curves) == ["a", "b"]
    assert curves["a"][1] is not None
    assert curves["b"][1] is None


def test_ends_are_medians() -> None:
    assert shape.ends(made([1, 1, 9, 1, 1, *[5] * 40, 2, 2, -9, 2, 2])) == (1, 2)
    assert shape.ends(made([3])) == (3, 3)


def test_neighbours_that_are_alike_widen_the_error() -> None:
    rng = np.random.default_rng(1)
    white = rng.normal(size=400)
    slow = shape.smooth(rng.normal(size=400), 9)
    assert shape.error_of_mean(white) == pytest.approx(0.05, rel=0.2)
    assert shape.error_of_mean(slow) > 2 * slow.std() / 20


def test_an_onset_lasts_to_the_end() -> None:
    curve_ = made([0.0] * 20)
    late = np.array([False] * 12 + [True] * 8)
    assert shape.onset(curve_, late) == int(curve_.steps[12])
    assert shape.onset(curve_, ~late) is None
    assert shape.onset(curve_, np.zeros(20, dtype=np.bool_)) is None
    once = late.copy()
    once[2] = True
    assert shape.onset(curve_, once) == int(curve_.steps[12])


def test_a_rank_correlation_needs_three_values_that_differ() -> None:
    assert shape.rising(np.array([1.0, 2.0])) == 0.0
    assert shape.rising(np.array([1.0, 2.0, 3.0])) == pytest.approx(1.0)
    assert shape.rising(np.array([3.0, 2.0, 1.0])) == pytest.approx(-1.0)
    assert shape.rising(np.array([2.0, 2.0, 2.0])) == 0.0


@pytest.mark.parametrize(
    ("values", "width", "expected"),
    [
        ([0.1, 0.2, 0.3], 1, [0.1, 0.2, 0.3]),  # to the last bit
        ([0, 3, 6, 0, 3], 3, [1.5, 3, 3, 3, 1.5]),
        ([0, 3, 6, 0, 3], 2, [1.5, 3, 3, 3, 1.5]),
        ([1, 2, 3, 4, 5], 5, [2, 2.5, 3, 3.5, 4]),
    ],
)
def test_a_running_mean_is_shorter_at_the_ends(
    values: list[float], width: int, expected: list[float]
) -> None:
    assert shape.smooth(np.array(values, dtype=np.float64), width).tolist() == expected


def test_an_error_needs_three_points() -> None:
    assert shape.error_of_mean(np.array([1.0, 2.0])) == math.inf
    assert shape.error_of_mean(np.array([1.0, 2.0, 3.0])) == pytest.approx(math.sqrt(1 / 3))
    assert shape.error_of_mean(np.array([2.0, 2.0, 2.0])) == 0


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("11", None),
        ("111", 0),
        ("100", None),
        ("0111", 1),
        ("00011", None),
        ("10111", 0),  # four of five are enough
        ("101110", None),  # three of four are not
        ("1100111", 4),
    ],
)
def test_three_points_last_of_which_one_in_five_may_differ(
    flags: str, expected: int | None
) -> None:
    is_so = np.array([flag == "1" for flag in flags])
    assert shape.onset(made([0.0] * len(flags)), is_so) == expected


def test_a_curve_before_a_step() -> None:
    curve = made([5, 6, 7])
    assert curve.before(None) is curve
    assert curve.before(1).values.tolist() == [5]


def test_what_was_so_for_long_and_is_no_longer_does_not_last() -> None:
    is_so = np.array([True] * 20 + [False] * 3)
    assert shape.onset(made([0.0] * 23), is_so) is None
    assert shape.onset(made([0.0] * 24), np.append(is_so, True)) == 0
    assert shape.onset(made([0.0] * 2), np.array([True, True])) is None
