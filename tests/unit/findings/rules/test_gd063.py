from __future__ import annotations

import numpy as np
import pytest

from tests.build import TraceBuilder
from tests.unit.findings.learners import alike, learner
from tests.unit.findings.rules.saying import passed, rows


def sick() -> TraceBuilder:
    hill = {"reward": lambda t, v, r: 1 - np.abs(2 * t - 1) + alike(len(t), 0.04, r)}
    return learner(hill)


def well() -> TraceBuilder:
    return learner()


@pytest.mark.parametrize("seed", range(20))
def test_a_plateau_is_no_fall(seed: int) -> None:
    plateau = {"reward": lambda t, v, r: np.minimum(0.6, 0.1 + t) + alike(len(t), 0.08, r, 0.7)}
    passed(learner(plateau, seed=seed), "GD063")
    noise = {"reward": lambda t, v, r: 0.5 + alike(len(t), 0.1, r, 0.7)}
    passed(learner(noise, seed=seed, steps=60 + 40 * seed), "GD063")


RUNS = {
    **rows(
        "a reward that stays where it is falls by nothing",
        lambda spread: learner({"reward": 0.5, "reward_std": spread}),
        None,
        0.0,
    ),
    "below the start is worse": lambda: learner(
        {"reward": lambda t, v, r: 0.6 - 0.6 * t + alike(len(t), 0.03, r)}
    ),
    "too short": lambda: learner(steps=30),
}
