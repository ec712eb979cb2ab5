from __future__ import annotations

import numpy as np

from grpo_doctor.findings.rules.gd056_length_growth import POINTS
from tests.build import TraceBuilder
from tests.unit.findings.learners import alike, learner

KEY = "completions/mean_length"
FLAT = {"reward": lambda t, v, r: 0.5 + alike(len(t), 0.05, r)}


def a_reward_that_pays_for_length_is_found() -> TraceBuilder:
    rng = np.random.default_rng(3)
    lengths = 200 * (1 + np.linspace(0, 1, 80)) + rng.normal(0, 15, 80)
    return learner({KEY: lengths, "reward": 0.01 * lengths})


T = np.linspace(0, 1, 80)
AT_ITS_LIMIT = np.where(T < 0.3, 100 + 1000 * T, 430 - 60 * T)
AT_ITS_LIMIT += np.random.default_rng(4).normal(0, 15, 80)


def length_that_is_paid_for_and_soon_at_its_limit() -> TraceBuilder:
    return learner({KEY: AT_ITS_LIMIT, "reward": 0.01 * AT_ITS_LIMIT})


def length_that_is_paid_for_and_soon_at_its_limit_2() -> TraceBuilder:
    return learner({**FLAT, KEY: AT_ITS_LIMIT})


def the_fewest_steps_that_are_judged_can_show_that() -> TraceBuilder:
    rng = np.random.default_rng(3)
    lengths = 200 * (1 + 2 * np.linspace(0, 1, POINTS)) + rng.normal(0, 15, POINTS)
    return learner({KEY: lengths, "reward": 0.01 * lengths}, steps=POINTS)


RUNS = {
    "sick": lambda:
        learner({**FLAT, KEY: lambda t, v, r: 200 * (1 + 2 * t) + r.normal(0, 10, len(t))}),
    "well": learner,
    "growth that pays is what it is for": lambda: learner({KEY: lambda t, v, r: 200 * (1 + t)}),
    "a better end counts whatever was before": lambda: learner(
        {
            KEY: lambda t, v, r: 200 * (1 + 2 * t) + r.normal(0, 10, len(t)),
            "reward": lambda t, v, r: np.where(t > 0.88, 0.9, 0.5) + r.normal(0, 0.01, len(t)),
        }
    ),
    "one long batch at the end is none 1": lambda:
        learner({**FLAT, KEY: lambda t, v, r: np.where(t > 0.93, 700.0, v)}),
    "one long batch at the end is none 2": lambda: learner({KEY: None}),
    "a loss that is constant already is not advised 1": lambda:
        learner({**FLAT, KEY: lambda t, v, r: 200 * (1 + 2 * t) + r.normal(0, 10, len(t))},
        knobs={"train.loss_type": "grpo"}),
    "a loss that is constant already is not advised 2": lambda:
        learner({**FLAT, KEY: lambda t, v, r: 200 * (1 + 2 * t) + r.normal(0, 10, len(t))},
        knobs={"train.loss_type": "dr_grpo"}),
    "half as long again is where growth begins": lambda:
        learner({**FLAT, KEY: [200.0] * 20 + [300.0] * 30 + [500.0] * 30}),
    "a reward that never changes goes with no length 1": lambda:
        learner({"reward": 0.5, KEY: lambda t, v, r: 200 * (1 + 2 * t) + r.normal(0, 10, len(t))}),
    "a reward that never changes goes with no length 2": lambda:
        learner({**FLAT, KEY: np.arange(200.0, 600.0, 5.0)}),
    "completions that were empty at first grow by no factor": lambda:
        learner({**FLAT, KEY: lambda t, v, r: np.where(t < 0.3, 0.0, 300.0)}),
}  # fmt: skip
