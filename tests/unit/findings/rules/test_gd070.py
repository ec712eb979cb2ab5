from __future__ import annotations

import pytest

from grpo_doctor.findings.rules import gd070_checkpoints_too_often as rule
from tests.build import TraceBuilder


def saved(every: int, seconds: float, *, steps: int = 12, step_s: float = 60.0) -> TraceBuilder:
    """Steps of a minute on two ranks; every so many and the last end with a checkpoint."""
    build = TraceBuilder(ranks=2, knobs={"checkpoint.save_steps": every})
    at = 0.0
    for number in range(1, steps + 1):
        phases = {"rollout": 0.7 * step_s, "train": 0.3 * step_s}
        if number % every == 0 or number == steps:
            phases["checkpoint"] = seconds
        for rank in (0, 1):
            build.step(rank, number, at, phases)
        at += sum(phases.values())
    return build


def ranks_that_died_at_different_steps() -> TraceBuilder:
    build = saved(2, 20.0)
    build.step(0, 13, 2000.0, {"rollout": 40.0})
    return build


def a_step_that_only_asks_whether_a_checkpoint_is() -> TraceBuilder:
    build = TraceBuilder(knobs={"checkpoint.save_steps": 2})
    for number in range(1, 13):
        seconds = 0.001 if number % 2 else 20.0
        build.step(0, number, 100.0 * number, {"rollout": 60.0, "checkpoint": seconds})
    return build


@pytest.mark.parametrize(("step_s", "steps"), [(864.0, 100), (864.1, 50), (1e6, 1)])
def test_the_best_interval_is_a_round_number_of_steps_that_is_not_longer(
    step_s: float, steps: int
) -> None:
    # A checkpoint of half a day and one failure a day: a day, or a hundred steps of 864 s.
    assert rule.best_interval(rule.Saving(0.1, 43_200.0, (), 1, step_s)) == steps


RUNS = {
    "sick": lambda: saved(2, 20.0),
    "well": lambda: saved(4, 2.0),
    "long checkpoints of long steps are right": lambda: saved(2, 1200.0, step_s=7200.0),
    "one checkpoint makes no interval 1": lambda: saved(12, 600.0),
    "one checkpoint makes no interval 2": lambda: saved(6, 600.0),
    "without steps": lambda: saved(1, 20.0, steps=1),
    "where every step saves the gain is replayed": lambda: saved(1, 20.0),
}
