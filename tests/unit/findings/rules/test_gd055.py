from __future__ import annotations

import math

import numpy as np

from tests.unit.findings.learners import learner
from tests.unit.findings.rules.saying import rows

RUNS = {
    "sick": lambda: learner({"kl": lambda t, v, r: v + np.where(t > 0.5, 6 * (t - 0.5), 0)}),
    "well": learner,
    **rows("no number is no large value 1",
        lambda bad: learner({"kl": lambda t, v, r: np.where(t > 0.9, bad, v)}), math.nan, math.inf),
    **rows("no number is no large value 2", lambda bad: learner({"kl": bad}), math.nan, math.inf),
    **rows("no number is no large value 3",
        lambda bad: learner({"kl": lambda t, v, r: np.where(t == 1, bad, v)}), math.nan, math.inf),
    "one odd token is no blow up": lambda:
        learner({"kl": lambda t, v, r: np.where(t == 1, 50.0, v)}),
    **rows(
        "who was far from the reference at the first step drifts at twice that",
        lambda last: learner(
            {"reward": lambda t, v, r: 0.5 + r.normal(0, 0.05, 80), "kl": np.r_[1.0, [last] * 79]}
        ),
        1.99,
        2.0,
    ),
    "without a reference there is no question 1": lambda: learner({"kl": None}),
    "without a reference there is no question 2": lambda: learner(steps=4),
    "the kl term gets heavier 1": lambda:
        learner({"reward": lambda t, v, r: 0.5 + r.normal(0, 0.05, len(t)), "kl": 1.0},
        knobs={"train.beta": 0.01}),
    "the kl term gets heavier 2": lambda: learner({"kl": 1.0}),
}  # fmt: skip
