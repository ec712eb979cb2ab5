from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tests.build import TraceBuilder
from tests.unit.findings.example_runs import SETTINGS, run
from tests.unit.findings.learners import alike, learner
from tests.unit.findings.rules.saying import rows

FLAT = {"reward": lambda t, v, r: 0.5 + alike(len(t), 0.05, r)}


def sick() -> TraceBuilder:
    """Gone at the middle of the run."""
    fall = {"entropy": lambda t, v, r: np.maximum(0.01, 0.6 * (1 - 2 * t)) + 0.002 * r.random(80)}
    return learner({**FLAT, **fall})


def well() -> TraceBuilder:
    return learner()


def of_steps(values: Sequence[float], begin: int = 1) -> TraceBuilder:
    """A run that says this entropy, and a reward that does not rise."""
    build = run(knobs=SETTINGS)
    for i, value_ in enumerate(values):
        build.metrics(begin + i, entropy=float(value_), reward=0.5 + 0.1 * (i % 2))
    return build


RUNS = {
    "a task that is being learned may lose entropy 1": lambda:
        learner({"entropy": lambda t, v, r: 0.6 * np.exp(-5 * t)}),
    "a task that is being learned may lose entropy 2": lambda: learner(
        {
            "entropy": lambda t, v, r: 0.6 * np.exp(-5 * t),
            "reward": lambda t, v, r: t + r.normal(0, 0.05, len(t)),
        }
    ),
    "a fall that levels off is healthy": lambda: learner(
        {**FLAT, "entropy": lambda t, v, r: 0.2 + 0.4 * np.exp(-8 * t) + r.normal(0, 0.01, len(t))}
    ),
    "a collapse within the first steps is seen": lambda:
        learner({**FLAT, "entropy": lambda t, v, r: 5 * np.exp(-80 * t)}),
    "a lone spike is no level to fall from": lambda: of_steps([0.06, 2.0, *[0.06] * 98]),
    "short runs and hardly any entropy 1": lambda: learner(steps=12),
    "short runs and hardly any entropy 2": lambda: learner({"entropy": 0.01}),
    "clipping and rate are advised with values": lambda:
        learner({**FLAT, "entropy": lambda t, v, r: 0.6 * np.exp(-6 * t)},
        knobs={"train.learning_rate": 1e-05, "train.beta": 0.0, "train.epsilon": 0.2}),
    **rows(
        "what crawls back a little has not recovered",
        lambda comes_back_to: learner(
            {
                **FLAT,
                "entropy": lambda t, v, r: np.interp(
                    t, [0, 0.3, 0.6, 1], [0.6, 0.03, 0.03, comes_back_to]
                ),
            }
        ),
        0.09,
        0.3,
    ),
    **rows("a tenth of the start is a collapse from its first step on",
        lambda low: of_steps([5.0] * 9 + [low] * 31), 0.5, 0.51),
    **rows("a fifth of the start is no recovery",
        lambda back_to: of_steps([5.0] * 9 + [0.25] * 10 + [back_to] * 21), 1.0, 1.25),
}  # fmt: skip
