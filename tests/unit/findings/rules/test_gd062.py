from __future__ import annotations

import numpy as np
import pytest

from grpo_doctor.findings.rules.gd062_gradient_norm import spiking
from tests.unit.findings.learners import learner
from tests.unit.findings.rules.saying import rows


def growing(first: float, middle: list[float], last: float) -> list[float]:
    return [first] * 8 + middle + [last] * 8


@pytest.mark.parametrize("usual", [0.01, 1.0, 50.0])
def test_a_spike_is_more_than_ten_times_the_usual(usual: float) -> None:
    at, beyond = (spiking(np.array([usual] * 9 + [usual * times])) for times in (9.99, 10.01))
    assert not at.any()
    assert beyond.tolist() == [False] * 9 + [True]
    assert not spiking(np.array([1.0] * 9 + [10.0])).any()


RUNS = {
    "sick": lambda: learner(
        {"grad_norm": lambda t, v, r: np.where(np.arange(len(t)) % 40 == 10, 900.0, v)}
    ),
    "well": learner,
    "with clipping it does less harm 1": lambda:
        learner({"grad_norm": lambda t, v, r: np.where(np.arange(len(t)) % 40 == 10, 900.0, v)},
        knobs={"train.max_grad_norm": 0.0}),
    "with clipping it does less harm 2": lambda:
        learner({"grad_norm": lambda t, v, r: np.where(np.arange(len(t)) % 40 == 10, 900.0, v)},
        knobs={"train.max_grad_norm": 1.0}),
    "one spike that is clipped is one odd batch 1": lambda:
        learner({"grad_norm": lambda t, v, r: np.where(t == 1, 900.0, v)},
        knobs={"train.max_grad_norm": 1.0}),
    "one spike that is clipped is one odd batch 2": lambda:
        learner({"grad_norm": lambda t, v, r: np.where(t == 1, 900.0, v)},
        knobs={"train.max_grad_norm": 0.0}),
    "growth is told from spikes": lambda: learner({"grad_norm": lambda t, v, r: v * 10 ** (2 * t)}),
    "steps without a gradient make no spikes": lambda:
        learner({"grad_norm": lambda t, v, r: np.where(r.random(len(t)) < 0.7, 0.0, v)}),
    "rounding is no gradient": lambda:
        learner({"grad_norm": lambda t, v, r: np.where(np.arange(len(t)) % 10 < 7, 1e-17, v)}),
    "nothing said and too few 1": lambda: learner({"grad_norm": None}),
    "nothing said and too few 2": lambda: learner(steps=5),
    **rows(
        "a norm grows tenfold and steadily",
        lambda norms: learner({"grad_norm": norms}),
        (growing(0.5, list(np.linspace(0.5, 5.0, 64)), 5.0),),
        (growing(0.5, list(np.linspace(0.5, 4.9, 64)), 4.9),),
        (growing(0.5, list(np.linspace(10.0, 5.0, 64)), 5.0),),
        (growing(0.5, list(np.linspace(0.5, 1.0, 64)), 1.0),),
    ),
    "what rounding leaves is no gradient 1": lambda: learner({"grad_norm": 1e-06}),
    "what rounding leaves is no gradient 2": lambda: learner({"grad_norm": 1.1e-06}),
}  # fmt: skip
