from __future__ import annotations

import math

import numpy as np

from tests.build import TraceBuilder
from tests.unit.findings.learners import learner
from tests.unit.findings.rules.saying import rows

EVERYWHERE = {"reward": math.nan, "reward_std": math.nan}


def a_step_that_says_nothing_is_not_a_nan() -> TraceBuilder:
    build = learner()
    build.metrics(81, loss=0.1)
    return build


def infinite_and_missing_together_are_missing() -> TraceBuilder:
    return learner({"reward": [math.nan, *[0.5] * 78, math.inf]})


RUNS = {
    "sick": lambda: learner(EVERYWHERE),
    "well": learner,
    **rows(
        "on some steps",
        lambda every: learner(
            {"reward": lambda t, v, r: np.where((np.arange(80) + 1) % every == 0, np.nan, v)}
        ),
        2,
        20,
        79,
    ),
    "the function is named": lambda: learner({**EVERYWHERE, "rewards/accuracy/mean": math.nan}),
    "some completions of each step": lambda: learner({"rewards/missing_ratio": 0.3}),
    "infinite is said as such": lambda: learner(
        {"reward": lambda t, v, r: np.where(t == 1, math.inf, v)}
    ),
    "a step that says nothing is not a nan 2": lambda: learner({"reward": None}),
}
