from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from grpo_doctor.analysis import analyse
from grpo_doctor.whatif import Edit, Prediction, StepModel, Withheld, build_model, predict, without
from grpo_doctor.whatif.prediction import AT_95, AT_97_5, RUN_ERROR, Effect, student, widened
from tests.build import TraceBuilder

_RUNS = 100
# Student's t from a table, at 95 and 97.5%.
TABLE = {2: (2.920, None), 3: (2.353, 3.182), 7: (1.895, 2.365), 15: (1.753, 2.131), 60: (1.671, 2)}


@pytest.mark.parametrize("freedom", TABLE)
def test_it_is_students_t_over_the_normal_without_bias(freedom: int) -> None:
    unbiased = np.sqrt((freedom + 1) / freedom)
    for normal, published in zip((AT_95, AT_97_5), TABLE[freedom], strict=True):
        if published is not None:
            factor = widened(freedom + 1, normal)
            assert factor == pytest.approx(published / normal * unbiased, rel=0.02)


@pytest.mark.parametrize(("freedom", "normal", "published", "off"), [
    (15, AT_95, 1.753050, 1e-5), (15, AT_97_5, 2.131450, 2e-5), (60, AT_95, 1.670649, 3e-7),
    (60, AT_97_5, 2.000298, 3e-7),
])  # fmt: skip
def test_of_more_values_it_is_students_t_to_five_digits(
    freedom: int, normal: float, published: float, off: float
) -> None:
    assert student(freedom + 1, normal) * normal == pytest.approx(published, rel=off)


@pytest.mark.parametrize("steps", [3, 5, 12])
def test_a_prediction_holds_what_runs_after_the_change_show(steps: int) -> None:
    """Nine in ten are promised; 100 runs have a standard error of 3%. The model is exact here."""
    hits, dice = 0, np.random.default_rng(steps)
    for _ in range(100):
        before, after = 5 * (1 + 0.1 * dice.normal(size=(2, steps)))
        build, now = TraceBuilder(), 0.0
        for number, train in enumerate(before.tolist()):
            build.step(0, number, now, {"offload": 5.0, "train": train})
            now += 5.0 + train
        model = build_model(analyse(build.build()))
        prediction = predict(model, Effect((without("offload"),), error=0.0), "so")
        assert isinstance(prediction, Prediction)
        hits += prediction.low <= 100 * (after.mean() / model.step_s - 1) <= prediction.high
    assert hits >= 84


def _of_steps(trains: NDArray[np.float64]) -> StepModel:
    build = TraceBuilder()
    for number in range(len(trains)):
        build.step(0, number, 10.0 * number, {"offload": 5.0, "train": 5.0})
    model = build_model(analyse(build.build()))
    seconds = model.seconds.copy()
    seconds[model.part("train")] = trains
    return replace(model, seconds=seconds, measured_s=5 + trains)


def test_of_steps_that_chance_rules_nothing_is_predicted() -> None:
    model = _of_steps(np.array([1.0, 2.0, 40.0, 1.0, 2.0, 30.0]))
    withheld = predict(model, Effect((without("offload"),)), "so")
    assert isinstance(withheld, Withheld)
    assert "vary so much that a second run of the same settings may differ by" in withheld.reason


@pytest.mark.parametrize("alternatives", [False, True])
@pytest.mark.parametrize(("steps", "error"), [(4, 0.3), (40, 0.2)])
def test_a_model_that_is_off_as_much_as_it_says_holds_nine_in_ten(
    steps: int, error: float, alternatives: bool
) -> None:
    """What each model assumes of itself, simulated: its error and that of two runs hold nine in
    ten, and where one run can't tell alternatives apart, one of both ends is true."""
    hits, dice = 0, np.random.default_rng([steps, alternatives])
    factors = (0.4, 0.7, 0.1)
    middle, shy, bold = ((Edit(("offload",), factor),) for factor in factors)
    for _ in range(_RUNS):
        before, after = 5 * (1 + 0.1 * dice.normal(size=(2, steps)))
        model = _of_steps(before)
        cautious, bolder = (shy, bold) if alternatives else (None, None)
        effect = Effect(middle, error=error, at_least=cautious, at_most=bolder)
        prediction = predict(model, effect, "so")
        assert isinstance(prediction, Prediction)
        factor = dice.choice(factors[1:]) if alternatives else factors[0]
        saved = 5 * (1 - factor) * (1 + error / AT_95 * dice.normal())
        other_run = 1 + RUN_ERROR / AT_95 * dice.normal()
        measured = (after.mean() + 5 - saved) * other_run
        hits += prediction.low <= 100 * (measured / model.step_s - 1) <= prediction.high
    assert hits >= 0.86 * _RUNS


@pytest.mark.parametrize(("count", "published"), [(21, 2.085963), (31, 2.042272)])
def test_a_quantile_of_few_values_is_that_of_the_tables(count: int, published: float) -> None:
    assert 1.959964 * student(count, 1.959964) == pytest.approx(published, rel=8e-6)
