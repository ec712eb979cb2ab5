from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tests.build import TraceBuilder
from tests.unit.findings.learners import learner
from tests.unit.findings.rules.saying import finding_in, rows, value

UPDATES = ("loss", "grad_norm", "kl", "entropy")


def lost(key: str, at: Any, bad: float = math.nan, **more: Any) -> TraceBuilder:
    return learner({key: lambda t, v, r: np.where(at(np.arange(1, len(t) + 1)), bad, v)}, **more)


@pytest.mark.parametrize("key", UPDATES)
@pytest.mark.parametrize(("bad", "word"), [(math.nan, "NaN"), (math.inf, "infinite")])
@pytest.mark.parametrize("first", [1, 2, 41, 79])
def test_the_first_step_is_named_and_the_run_is_ruined(
    key: str, bad: float, word: str, first: int
) -> None:
    finding = finding_in(lost(key, lambda step: step >= first, bad), "GD064")
    when = "at every step" if first == 1 else f"from step {first} on"
    assert finding.headline.endswith(f"is {word} {when}")
    assert value(finding, "first at step") == first
    assert (finding.severity, finding.ruins) == ("high", True)


RUNS = {
    "sick": lambda: learner({"kl": lambda t, v, r: np.where(np.arange(len(t)) >= 60, math.nan, v)}),
    "well": learner,
    "a single odd step ruins nothing": lambda: lost("kl", lambda step: step == 80),
    "nor do other metrics": lambda: lost("clip_ratio/region_mean", lambda step: step > 9),
    "the earliest leads and the others follow": lambda: learner(
        {
            key: np.where(np.arange(80) >= at, math.nan, 0.5)
            for key, at in (("loss", 50), ("kl", 30))
        }
    ),
    **rows("one gradient in a hundred may be a loss scale being found",
        lambda count: lost("grad_norm", lambda step: step <= count, math.inf, steps=200), 1, 2, 3),
    **rows("a gradient of exactly zero changes no weight 1",
        lambda steps: learner({"grad_norm": 0.0, "loss": 0.0}, steps=steps), 1, 3, 80),
    **rows("a gradient of exactly zero changes no weight 2",
        lambda steps: learner({"grad_norm": 0.0, "reward": 1.0, "reward_std": 0.0}, steps=steps),
        1, 3, 80),
    "a loss that never changes unless it is zero 1": lambda: learner({"loss": 0.0}),
    "a loss that never changes unless it is zero 2": lambda: learner({"loss": 0.0123}, steps=4),
    "a loss that never changes unless it is zero 3": lambda: learner({"loss": 0.0123}),
    "without metrics there is nothing to judge": lambda: learner(steps=0),
}  # fmt: skip
