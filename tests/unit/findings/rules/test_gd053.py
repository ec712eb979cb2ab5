from __future__ import annotations

import numpy as np

from tests.build import TraceBuilder
from tests.unit.findings.learners import learner
from tests.unit.findings.rules.saying import named, rows

KEY = "clip_ratio/region_mean"


def three_steps_count_from_a_fifth_on(share: float) -> TraceBuilder:
    shares = np.zeros(80)
    shares[10:13] = share
    return learner({KEY: shares})


def a_policy_that_clips_much_until_it_is_lost() -> TraceBuilder:
    shares = np.zeros(80)
    shares[1:4] = 0.45
    return learner({KEY: shares})


RUNS = {
    "sick": lambda:
        learner({KEY: lambda t, v, r: np.where(t < 0.5, v, 0.25 + 0.02 * r.random(len(t)))}),
    "well": learner,
    "passes over a rollout come first": lambda: learner({KEY: 0.5},
        knobs={"train.num_iterations": 4, "train.max_grad_norm": 5.0}),
    "ratios per sequence clip by design": lambda: learner({KEY: 0.3},
        knobs={"train.importance_level": "sequence"}),
    "one step of much clipping is noise 1": lambda:
        learner({KEY: lambda t, v, r: np.where(np.arange(len(t)) == 40, 0.9, v)}),
    "one step of much clipping is noise 2": lambda: learner({KEY: None}),
    **rows("what reaches a grade has it from the first step 1", lambda key,
        share: learner({key: share, "reward": lambda t, v, r: 1 - t}), (KEY, 0.1), (KEY, 0.2),
        (KEY, 0.4), ("kl", 0.5), ("kl", 2.0), ("sampling/sampling_logp_difference/mean", 0.05)),
    **rows(
        "what reaches a grade has it from the first step 2",
        lambda key, share: learner({key: 0.999 * share, "reward": lambda t, v, r: 1 - t}),
        (KEY, 0.1),
        (KEY, 0.2),
        (KEY, 0.4),
        ("kl", 0.5),
        ("kl", 2.0),
        ("sampling/sampling_logp_difference/mean", 0.05),
    ),
    **named(three_steps_count_from_a_fifth_on, 0.4, 0.39, 0.2, 0.19),
}  # fmt: skip
