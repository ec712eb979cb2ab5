from __future__ import annotations

import numpy as np

from tests.build import TraceBuilder
from tests.unit.findings.learners import learner
from tests.unit.findings.rules.saying import rows

LOW, HIGH = "clip_ratio/low_mean", "clip_ratio/high_mean"


def clipping(low: list[float], high: list[float]) -> TraceBuilder:
    """Eighty steps of which each ten are alike."""
    return learner({LOW: np.tile(low, 8), HIGH: np.tile(high, 8)})


RUNS = {
    "sick": lambda: learner({HIGH: lambda t, v, r: 0.05 + 0.01 * r.random(len(t))}),
    "well": learner,
    "downwards gets smaller steps": lambda: learner({LOW: 0.06, HIGH: 0.001}),
    "a bound that is wide already": lambda: learner(
        {LOW: 0.001, HIGH: 0.06}, knobs={"train.epsilon_high": 0.3}
    ),
    "sides that take turns and hardly any clipping 1": lambda: learner(
        {
            LOW: lambda t, v, r: r.exponential(0.05, len(t)),
            HIGH: lambda t, v, r: r.exponential(0.05, len(t)),
        }
    ),
    "sides that take turns and hardly any clipping 2": lambda: learner({LOW: None}),
    "sides that take turns and hardly any clipping 3": lambda: learner({LOW: 0.0, HIGH: 0.01}),
    **rows(
        "one side leads threefold and in four of five steps",
        clipping,
        ([0.125] * 10, [0.375] * 10),
        ([0.125] * 10, [0.3125] * 10),
        ([0.125] * 10, [0.625] * 8 + [0.0] * 2),
        ([0.125] * 10, [0.625] * 7 + [0.0] * 3),
        ([0.125] * 2 + [0.0] * 8, [0.625] * 7 + [0.0] * 3),
        ([0.375] * 10, [0.125] * 10),
    ),
}
