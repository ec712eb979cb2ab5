from __future__ import annotations

import numpy as np

from tests.unit.findings.learners import learner
from tests.unit.findings.rules.saying import rows

KEY = "sampling/sampling_logp_difference/mean"


RUNS = {
    "sick": lambda: learner({KEY: lambda t, v, r: 0.15 + 0.01 * r.random(len(t))}),
    "well": learner,
    "the gap is graded 1": lambda: learner({KEY: 0.4}),
    "the gap is graded 2": lambda: learner({KEY: 0.06}),
    "one that grows points at the weights": lambda: learner({KEY: lambda t, v, r: 0.005 + 0.3 * t}),
    "trl has a flag": lambda: learner({KEY: 0.15}, knobs={"rollout.importance_correction": False},
        framework="trl", framework_version="1.16.0"),
    "rounding passes and no engine says nothing 1": lambda: learner({KEY: 0.02}),
    "rounding passes and no engine says nothing 2": lambda: learner({KEY: None}),
    **rows(
        "a correction that is on is not advised",
        lambda framework, version: learner(
            {KEY: 0.15},
            knobs={"rollout.importance_correction": True},
            framework=framework,
            framework_version=version,
        ),
        ("trl", "1.16.0"),
        ("openrlhf", "0.8.0"),
    ),
    **rows(
        "a mixture of experts is told to replay the engine's choice, a dense model is not",
        lambda model, replay: learner(
            {KEY: 0.15},
            knobs={
                "model.name": model,
                "train.router_replay": replay,
                "parallel.expert": 4,
                "parallel.strategy": "megatron",
                "vllm.quantization": "fp8",
            },
            framework="verl",
            framework_version="0.9.1",
        ),
        ("Qwen/Qwen3-30B-A3B", "disabled"),
        ("Qwen/Qwen3-30B-A3B", "R3"),
        ("Qwen/Qwen3-8B", "disabled"),
    ),
    **rows("a gap grows where it more than doubles",
        lambda last: learner({KEY: lambda t, v, r: np.where(t < 0.5, 0.1, last)}), 0.2, 0.21),
}  # fmt: skip
