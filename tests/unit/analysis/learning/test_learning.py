from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from grpo_doctor.analysis.learning import components, curve, spellings
from grpo_doctor.analysis.learning.curves import Curve
from grpo_doctor.analysis.learning.names import Spelled
from grpo_doctor.analysis.learning.shape import (
    arrival,
    ends,
    error_of_mean,
    noise,
    onset,
    rising,
    smooth,
)
from tests.build import TraceBuilder


def made(values: Sequence[float]) -> Curve:
    return Curve("x", np.arange(len(values)), np.array(values))


@pytest.mark.parametrize(
    ("framework", "version", "metric", "first"),
    [
        ("bundled", "0.1.0", "length", "completions/mean_length"),
        ("trl", "0.15.2", "length", "completion_length"),
        ("trl", "1.16.0", "length", "completions/mean_length"),
        ("ms-swift", "4.6.0", "clip", "clip_ratio/region_mean"),
        ("verl", "0.9.1", "reward", "critic/score/mean"),
        ("openrlhf", "0.11.2", "reward", "rollout/reward_mean"),
        ("openrlhf", "0.9.0", "reward", "reward"),
    ],
)
def test_a_metric_has_its_frameworks_name(
    framework: str, version: str, metric: str, first: str
) -> None:
    assert spellings(metric, framework, version)[0] == first


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
    assert ends(made([1, 1, 9, 1, 1, *[5] * 40, 2, 2, -9, 2, 2])) == (1, 2)
    assert ends(made([3])) == (3, 3)


def test_noise_ignores_a_trend_and_a_spike() -> None:
    drawn = np.random.default_rng(0).normal(0, 2, 400) + np.arange(400)
    drawn[100] = 1e6
    assert noise(drawn) == pytest.approx(2, rel=0.2)


def test_neighbours_that_are_alike_widen_the_error() -> None:
    rng = np.random.default_rng(1)
    white = rng.normal(size=400)
    slow = smooth(rng.normal(size=400), 9)
    assert error_of_mean(white) == pytest.approx(0.05, rel=0.2)
    assert error_of_mean(slow) > 2 * slow.std() / 20


def test_rising_by_rank() -> None:
    assert rising(np.array([1.0, 2, 30, 400])) == pytest.approx(1)
    assert rising(np.array([4.0, 3, 2, 1])) == pytest.approx(-1)
    assert rising(np.array([1.0, 1, 1, 1])) == 0


@pytest.mark.parametrize(
    ("flags", "expected"),
    [("0000111111", 4), ("0100111011", 4), ("1111000000", None), ("0000000001", None)],
)
def test_onset_is_where_it_begins_to_last(flags: str, expected: int | None) -> None:
    is_so = np.array([flag == "1" for flag in flags])
    assert onset(made([0.0] * 10), is_so) == expected


def test_arrival_takes_the_better_law() -> None:
    steps = np.arange(40)
    line = arrival(made((4 - 0.05 * steps).tolist()), 1.0)
    assert line is not None
    assert (line.step, line.law) == (60, "linear")
    decay = arrival(made((4 * np.exp(-0.05 * steps)).tolist()), 0.04)
    assert decay is not None
    assert (decay.step, decay.law) == (math.ceil(math.log(100) / 0.05), "exponential")
    assert arrival(made(steps.tolist()), 1.0) is None
    assert arrival(made([1.0] * 9), 0.5) is None


def test_only_a_line_comes_down_to_nothing_or_below() -> None:
    decay = made([4 * 0.8**step for step in range(40)])
    meeting = arrival(decay, 0.0)
    assert meeting is not None
    assert meeting.law == "linear"
    below = arrival(made([3.0 - 0.1 * step for step in range(50)]), 0.5)
    assert below is not None
    assert below.law == "linear"
    assert below.fit == pytest.approx(1.0)


def test_an_onset_lasts_to_the_end() -> None:
    curve_ = made([0.0] * 20)
    late = np.array([False] * 12 + [True] * 8)
    assert onset(curve_, late) == int(curve_.steps[12])
    assert onset(curve_, ~late) is None
    assert onset(curve_, np.zeros(20, dtype=np.bool_)) is None
    once = late.copy()
    once[2] = True
    assert onset(curve_, once) == int(curve_.steps[12])


def test_a_rank_correlation_needs_three_values_that_differ() -> None:
    assert rising(np.array([1.0, 2.0])) == 0.0
    assert rising(np.array([1.0, 2.0, 3.0])) == pytest.approx(1.0)
    assert rising(np.array([3.0, 2.0, 1.0])) == pytest.approx(-1.0)
    assert rising(np.array([2.0, 2.0, 2.0])) == 0.0


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
    assert smooth(np.array(values, dtype=np.float64), width).tolist() == expected


def test_noise_and_error_need_three_points() -> None:
    assert noise(np.array([0.0, 5.0])) == 0
    assert noise(np.array([0.0, 0.0, 5.0])) == pytest.approx(1.4826 * 2.5 / math.sqrt(2))
    assert noise(np.array([0.0, 1.0, 2.0, 4.0])) == 0  # one step out of line
    assert error_of_mean(np.array([1.0, 2.0])) == math.inf
    assert error_of_mean(np.array([1.0, 2.0, 3.0])) == pytest.approx(math.sqrt(1 / 3))
    assert error_of_mean(np.array([2.0, 2.0, 2.0])) == 0


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
    assert onset(made([0.0] * len(flags)), is_so) == expected


@pytest.mark.parametrize(
    ("values", "floor", "expected"),
    [
        ([3, 2], 0, None),
        ([3, 2, 1], 0, (3, "linear")),
        ([1, 2, 3], 0, None),
        ([8, 4, 2, 1], 0.5, (4, "exponential")),
        ([8, 4, 2, 1, 0], 0.5, (4, "linear")),  # zero has no logarithm
    ],
)
def test_three_points_or_more_arrive_at_a_floor(
    values: list[float], floor: float, expected: tuple[int, str] | None
) -> None:
    meeting = arrival(made(values), floor)
    assert (meeting and (meeting.step, meeting.law)) == expected


def test_a_curve_before_a_step() -> None:
    curve = made([5, 6, 7])
    assert curve.before(None) is curve
    assert curve.before(1).values.tolist() == [5]


@pytest.mark.parametrize(
    ("version", "key"),
    [
        ("0.16.9", "completion_length"),
        ("0.17.0", "completions/mean_length"),
        ("0.17.1", "completions/mean_length"),
    ],
)
def test_a_name_begins_with_one_version_and_ends_before_another(version: str, key: str) -> None:
    assert spellings("length", "trl", version)[0] == key


def test_what_was_so_for_long_and_is_no_longer_does_not_last() -> None:
    is_so = np.array([True] * 20 + [False] * 3)
    assert onset(made([0.0] * 23), is_so) is None
    assert onset(made([0.0] * 24), np.append(is_so, True)) == 0
    assert onset(made([0.0] * 2), np.array([True, True])) is None


def test_the_fit_of_an_arrival_is_the_share_of_variance_that_its_law_explains() -> None:
    values = 10 - np.arange(12) + np.array([0.3, -0.4] * 6)
    met = arrival(made(values.tolist()), floor=-9.0)
    assert met is not None
    assert met.law == "linear"
    assert met.fit == pytest.approx(np.corrcoef(values, np.arange(12))[0, 1] ** 2)


def test_a_curve_that_reached_zero_falls_by_a_line() -> None:
    met = arrival(made([4.0, 3.0, 2.0, 1.0, 0.0, 0.0]), floor=0.5)
    assert met is not None
    assert met.law == "linear"


@pytest.mark.parametrize(
    ("version", "logged"),
    [("0.16.9", False), ("0.17.0", True), ("0.19.9", True), ("0.20.0", False)],
)
def test_a_key_is_logged_from_its_first_version_to_before_the_first_without(
    version: str, logged: bool
) -> None:
    key = Spelled("key", ("trl", "ms-swift"), since="0.17.0", until="0.20.0")
    assert key.covers("trl", version) is logged
    assert key.covers("ms-swift", version)  # its own versions are others
