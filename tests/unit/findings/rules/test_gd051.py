from __future__ import annotations

import numpy as np

from tests.unit.findings.learners import learner
from tests.unit.findings.rules.saying import rows

RATIO = "completions/clipped_ratio"


FLAT = {"reward": lambda t, v, r: 0.5 + r.normal(0, 0.05, len(t))}


RUNS = {
    "sick": lambda: learner({**FLAT, RATIO: lambda t, v, r: r.binomial(256, 0.2, len(t)) / 256}),
    "well": learner,
    **rows("who ended half and then hardly any has stopped to end", lambda at_first, at_last:
        learner({**FLAT, RATIO: lambda t, v, r: np.where(t > 0.4, at_last, at_first)}),
        (0.49, 0.98), (0.5, 0.98), (0.49, 0.97)),
    **rows("grades", lambda share: learner({**FLAT, RATIO: share}), 0.06, 0.3, 0.6, 1.0),
    "a reward that rises all the same or a short run 1": lambda: learner({**FLAT, RATIO: 0.4},
        steps=10),
    "a reward that rises all the same or a short run 2": lambda:
        learner({"reward": lambda t, v, r: t + r.normal(0, 0.05, len(t)), RATIO: 0.9}),
    "a reward that rises all the same or a short run 3": lambda: learner({**FLAT, RATIO: 0.9},
        steps=10),
    "a late rise counts": lambda: learner({RATIO: lambda t, v, r: np.where(t > 0.8, 0.4, 0.0)}),
    **rows(
        "a model that learns to end is told to wait",
        lambda at_last: learner(
            {**FLAT, RATIO: lambda t, v, r: 0.98 - (0.98 - at_last) * np.minimum(1, 1.2 * t)}
        ),
        0.4,
        0.1,
        0.04,
    ),
    "a model that never ends gets other advice": lambda: learner({RATIO: 1.0}),
    "a model that stopped to end does not need more room": lambda:
        learner({**FLAT, RATIO: lambda t, v, r: np.where(t > 0.4, 1.0, 0.1)}),
    "few and missing 1": lambda: learner({RATIO: 0.02}),
    "few and missing 2": lambda: learner({RATIO: None}),
    **rows("of few steps only half of all completions count",
        lambda share: learner({**FLAT, RATIO: share}, steps=10), 0.5, 0.499),
    **rows(
        "a model that never ends gets more room only under a hardly",
        lambda limit: learner(
            {RATIO: 1.0},
            knobs={} if limit is None else {"rollout.max_completion_length": limit},
            framework="ms-swift" if limit else "unknown",
        ),
        15,
        16,
        512,
        None,
    ),
}  # fmt: skip
