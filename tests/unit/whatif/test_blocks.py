from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from grpo_doctor.analysis import analyse
from grpo_doctor.whatif import Prediction, StepModel, build_model, predict, without
from grpo_doctor.whatif.prediction import Effect, block_length, draw_blocks, neighbor_means
from tests.build import TraceBuilder

_RUNS = 100
_STEPS = 60


def _drifting(dice: np.random.Generator, correlation: float, runs: int) -> NDArray[np.float64]:
    """Steps of each run, shape (runs, steps): each leans on the one before, deviation 1."""
    noise = dice.normal(size=(runs, _STEPS + 50))
    steps = noise.copy()
    for number in range(1, steps.shape[1]):
        fresh = np.sqrt(1 - correlation**2) * noise[:, number]
        steps[:, number] = correlation * steps[:, number - 1] + fresh
    return steps[:, 50:]


@pytest.fixture(scope="module")
def even() -> StepModel:
    """Steps that are all alike: 5 s of offload, 5 s of training."""
    build = TraceBuilder()
    for number in range(_STEPS):
        build.step(0, number, 10.0 * number, {"offload": 5.0, "train": 5.0})
    return build_model(analyse(build.build()))


def _prediction(even: StepModel, trains: NDArray[np.float64]) -> Prediction:
    seconds = even.seconds.copy()
    seconds[even.part("train")] = trains
    model = replace(even, seconds=seconds, measured_s=5 + trains)
    prediction = predict(model, Effect((without("offload"),), error=0.0), "so")
    assert isinstance(prediction, Prediction)
    return prediction


@pytest.mark.parametrize(("correlation", "smallest"), [(0.0, 0.90), (0.5, 0.84), (0.8, 0.76)])
def test_another_run_of_a_host_that_drifts_is_held_too(
    even: StepModel, correlation: float, smallest: float
) -> None:
    """Nine in ten are promised, of many steps; a drift as long as a sixth of the run is seen too
    seldom to be known. With single steps drawn, 77% and 47% of the last two would hold."""
    dice, hits = np.random.default_rng(round(10 * correlation)), 0
    before, after = (5 * (1 + 0.2 * _drifting(dice, correlation, _RUNS)) for _ in range(2))
    for trains, after_steps in zip(before, after, strict=True):
        prediction = _prediction(even, trains)
        measured = 100 * (after_steps.mean() / (5 + trains.mean()) - 1)
        hits += prediction.low <= measured <= prediction.high
    assert hits >= smallest * _RUNS


def test_the_same_steps_in_another_order_are_less_sure_where_they_drift(even: StepModel) -> None:
    dice = np.random.default_rng(3)
    drifting = 5 * (1 + 0.2 * _drifting(dice, 0.8, 1)[0])
    mixed = dice.permutation(drifting)
    wide, usual = (_prediction(even, trains) for trains in (drifting, mixed))
    assert wide.mid == pytest.approx(usual.mid)
    assert wide.high - wide.low > 1.5 * (usual.high - usual.low)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.floats(0.1, 10), min_size=3, max_size=40), st.integers(0, 5))
def test_blocks_are_of_neighbours_and_draw_each_step_as_often(
    steps: list[float], seed: int
) -> None:
    values = np.array(steps)
    length = block_length(values)
    assert 1 <= length <= max(1, len(values) // 4)
    assert block_length(values * 7) == length
    rows = draw_blocks(len(values), length, 2000, np.random.default_rng(seed))
    assert rows.shape == (2000, len(values))
    ends = np.arange(1, len(values)) % length == 0
    follows = (np.diff(rows, axis=1) - 1) % len(values) == 0
    assert follows[:, ~ends].all()
    drawn = np.bincount(rows.ravel(), minlength=len(values))
    assert (np.abs(drawn / drawn.mean() - 1) < 0.5).all()


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 30_000), st.integers(0, 5))
def test_long_runs_are_drawn_from_means_of_neighbours(steps: int, seed: int) -> None:
    values = np.random.default_rng(seed).uniform(1, 2, steps)
    thin = neighbor_means(values)
    assert len(thin) == steps if steps <= 4096 else 2048 <= len(thin) <= 4096
    size = -(-steps // len(thin))
    assert thin[0] == pytest.approx(values[:size].mean())
    assert thin[-1] == pytest.approx(values[(len(thin) - 1) * size :].mean())


def test_an_interval_of_a_long_run_is_that_of_its_single_steps() -> None:
    values = np.random.default_rng(7).normal(10, 1, 16_384)
    spreads = []
    for drawn_from in (values, neighbor_means(values)):
        rows = draw_blocks(len(drawn_from), 1, 1000, np.random.default_rng(1))
        spreads.append(drawn_from[rows].mean(axis=1).std())
    assert len(neighbor_means(values)) == 4096
    assert spreads[1] == pytest.approx(spreads[0], rel=0.1)
