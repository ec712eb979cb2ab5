from __future__ import annotations

import math

import numpy as np

from tests.build import TraceBuilder
from tests.unit.findings.learners import learner


def collapsing(equal_before: float) -> TraceBuilder:
    """The entropy collapses at a quarter; from there on nearly all groups are equal."""
    return learner(
        {
            "entropy": lambda t, v, r: np.where(t < 0.25, 0.5, 0.001),
            "frac_reward_zero_std": lambda t, v, r: np.where(t < 0.25, equal_before, 0.9),
        }
    )


RUNS = {
    "sick": lambda:
        learner({"frac_reward_zero_std": lambda t, v, r: r.binomial(32, 0.6, len(t)) / 32}),
    "well": learner,
    "equal since the entropy collapsed": lambda: collapsing(0.1),
    "equal before the entropy collapsed": lambda: collapsing(0.6),
    "missing rewards are not told as equal ones 1": lambda:
        learner({"reward": math.nan, "reward_std": math.nan, "frac_reward_zero_std": 1.0}),
    "missing rewards are not told as equal ones 2": lambda:
        learner({"rewards/missing_ratio": 0.6, "frac_reward_zero_std": 0.65}),
    "some steps without rewards leave the others to be judged": lambda: learner(
        {
            "reward": lambda t, v, r: np.where(np.arange(80) % 4 == 0, np.nan, v),
            "frac_reward_zero_std": np.where(np.arange(80) % 4 == 0, 1.0, 0.1),
        }
    ),
    "a reward that is constant is another rules": lambda:
        learner({"reward": 0.0, "reward_std": 0.0, "frac_reward_zero_std": 1.0}),
    "one unlucky step is no finding": lambda: learner({"frac_reward_zero_std": [0, 0, 1, 1, 0, 0]},
        steps=6),
    "a framework that does not log it is told the key": lambda:
        learner({"frac_reward_zero_std": None}),
}  # fmt: skip
