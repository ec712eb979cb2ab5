from __future__ import annotations

import numpy as np

from tests.build import TraceBuilder
from tests.unit.findings.learners import learner
from tests.unit.findings.rules.saying import rows


def ending(first: float, last: float, flat: int = 40) -> TraceBuilder:
    """Eighty steps that end with so many flat ones."""
    flat_steps = np.arange(80) >= 80 - flat
    return learner(
        {"reward": np.where(flat_steps, last, first), "reward_std": np.where(flat_steps, 0.0, 0.3)}
    )


RUNS = {
    "sick": lambda: learner({"reward": 0.5, "reward_std": 0.0, "frac_reward_zero_std": 1.0}),
    "well": learner,
    "solved on the way": lambda: learner(
        {
            "reward": lambda t, v, r: np.minimum(1, 0.2 + 1.6 * t),
            "reward_std": lambda t, v, r: np.where(0.2 + 1.6 * t >= 1, 0, 0.3),
        }
    ),
    "a policy that was better before is lost": lambda: learner(
        {
            "reward": lambda t, v, r: np.where(t < 0.4, 0.6, 0.0),
            "reward_std": lambda t, v, r: np.where(t < 0.4, 0.3, 0.0),
        }
    ),
    "a few flat steps at the end or at the start 1": lambda: learner(
        {
            "reward": lambda t, v, r: np.where(t < 0.3, 0.0, v),
            "reward_std": lambda t, v, r: np.where(t < 0.3, 0.0, v),
        }
    ),
    "a few flat steps at the end or at the start 2": lambda: learner(
        {
            "reward": lambda t, v, r: np.where(t > 0.9, 1.0, v),
            "reward_std": lambda t, v, r: np.where(t > 0.9, 0.0, v),
        }
    ),
    "a constant mean of varying rewards is alive 1": lambda: learner({"reward": 0.5}),
    "a constant mean of varying rewards is alive 2": lambda:
        learner({"reward": 0.5, "reward_std": 0.0}, steps=4),
    "a constant mean of varying rewards is alive 3": lambda: learner({"reward_std": None}),
    "without deviations one mean for all is enough 1": lambda:
        learner({"reward": 0.0, "reward_std": None}),
    "without deviations one mean for all is enough 2": lambda: learner(
        {
            "reward": None,
            "reward_std": None,
            "critic/score/mean": 0.5,
            "critic/score/max": 1.0,
            "critic/score/min": 1.0,
        }
    ),
    "without deviations one mean for all is enough 3": lambda: learner(
        {
            "reward": None,
            "reward_std": None,
            "critic/score/mean": 0.5,
            "critic/score/max": 1.0,
            "critic/score/min": 0.0,
        }
    ),
    "steps that differ are not counted as flat": lambda: learner(
        {
            "reward": np.where(np.isin(np.arange(80), (3, 17, 40, 70)), 0.3, 0.0),
            "reward_std": np.where(np.isin(np.arange(80), (3, 17, 40, 70)), 0.2, 0.0),
        }
    ),
    **rows("a reward has risen or fallen by more than a millionth", ending, (0.0, 1.1e-06),
        (0.0, 1e-06), (0.5, 0.5), (1e-06, 0.0), (1.1e-06, 0.0)),
    **rows("a fifth of the run has to be flat", lambda flat: ending(0.2, 1.0, flat), 16, 15),
}  # fmt: skip
