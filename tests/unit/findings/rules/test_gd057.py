from __future__ import annotations

import math

import numpy as np

from tests.unit.findings.learners import learner
from tests.unit.findings.rules.saying import rows

OTHER = {"rewards/other/mean": 1.0, "rewards/other/std": 0.0}


RUNS = {
    "sick": lambda: learner({"rewards/format/mean": 0.0, "rewards/format/std": 0.0}),
    "well": learner,
    "one that is always satisfied is only a note": lambda:
        learner({"rewards/format/mean": 1.0, "rewards/format/std": 0.0}),
    "one that decides alone 1": lambda: learner({"rewards/accuracy/std": 30.0}),
    "one that decides alone 2": lambda: learner({"rewards/accuracy/std": 30.0},
        framework="unknown", framework_version=None),
    "weights count": lambda: learner({"rewards/accuracy/std": 30.0},
        knobs={"reward.weights": "0.01 1.0"}),
    "a function that was learned is healthy": lambda: learner(
        {
            "rewards/format/mean": lambda t, v, r: np.minimum(1, 0.5 + 2 * t),
            "rewards/format/std": lambda t, v, r: np.maximum(0, 0.5 - 2 * t),
        }
    ),
    **rows(
        "without deviations a function whose mean never changes is known to be one value",
        lambda mean: learner(
            {"rewards/accuracy/std": None, "rewards/format/std": None, "rewards/format/mean": mean}
        ),
        0.0,
        1.0,
    ),
    "one function alone and none 1": lambda:
        learner({"rewards/format/mean": None, "rewards/format/std": None}),
    "one function alone and none 2": lambda: learner(
        {
            "rewards/format/mean": None,
            "rewards/format/std": None,
            "rewards/accuracy/mean": None,
            "rewards/accuracy/std": None,
        }
    ),
    "what never gives anything is named before what always does 1": lambda:
        learner({"rewards/format/mean": 0.0, "rewards/format/std": 0.0, **OTHER}),
    "what never gives anything is named before what always does 2": lambda: learner(OTHER),
    **rows(
        "one of the others may decide alone besides",
        lambda spread: learner(
            {**OTHER, "rewards/accuracy/std": spread, "rewards/format/std": 1.0 - spread}
        ),
        0.8,
        0.79,
    ),
    **rows("a function whose deviation is not known is left out 1",
        lambda change: learner({"rewards/format/std": change}), None, math.nan),
    "a function whose deviation is not known is left out 2": lambda:
        learner({"rewards/format/std": np.where(np.arange(80) < 5, 0.1, math.nan)}),
    "a function whose deviation is not known is left out 3": lambda:
        learner({"rewards/format/mean": math.nan}),
    "what is equal within a step alone is not always the same": lambda:
        learner({**OTHER, "rewards/other/mean": [-0.1 * (step % 5) for step in range(80)]}),
}  # fmt: skip
