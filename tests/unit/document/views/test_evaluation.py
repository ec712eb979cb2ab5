"""Evaluations: the best one, and whether a checkpoint was written there."""

from __future__ import annotations

import pytest

from grpo_doctor.analysis import analyse
from grpo_doctor.document.views.metrics import MAX_POINTS, evaluation
from grpo_doctor_reports.schema.views import Evaluation
from tests.build import TraceBuilder

NAN = float("nan")


def evaluated(*rows: dict[str, float], saved: dict[int, float] | None = None) -> Evaluation | None:
    """Metrics of steps 1, 2, ...; `saved` is how long each of them wrote a checkpoint."""
    build = TraceBuilder(ranks=2)
    for number, row in enumerate(rows, start=1):
        for rank in (0, 1):
            phases = {"train": 5.0}
            if rank and saved and number in saved:
                phases["checkpoint"] = saved[number]
            build.step(rank, number, 10.0 * number, phases)
        build.metrics(number, **row)
    return evaluation(analyse(build.build()))


@pytest.mark.parametrize(("rows", "metric", "best"), [
    ([{"eval_reward": 1.0}, {"eval_reward": 3.0}, {"eval_reward": 2.0}], "eval_reward", 2),
    ([{"eval_reward": 1.0}, {"eval_reward": 3.0}, {"eval_reward": 3.0}], "eval_reward", 2),
    ([{"eval_loss": 1.0}, {"eval_loss": 3.0}, {"eval_loss": 0.5}], "eval_loss", 3),
    ([{"eval_loss": 1.0, "eval_reward": 2.0}], "eval_reward", 1),
    ([{"eval_loss": 1.0, "eval_reward": NAN}, {"eval_loss": 0.5}], "eval_loss", 2),
])  # fmt: skip
def test_the_best_reward_is_the_largest_and_the_best_loss_the_smallest(
    rows: list[dict[str, float]], metric: str, best: int
) -> None:
    view = evaluated(*rows)
    assert view is not None
    assert (view.metric, view.best_step) == (metric, best)


def test_without_an_evaluation_there_is_none() -> None:
    assert evaluated({"reward": 1.0}) is None
    assert evaluated({"eval_reward": NAN, "eval_loss": NAN}) is None


@pytest.mark.parametrize(
    ("saved", "is_saved"),
    [({2: 1.0}, True), ({1: 1.0}, False), ({2: 0.001}, False), ({2: 0.0011}, True), ({}, False)],
)
def test_a_checkpoint_counts_where_any_rank_wrote_one_in_that_very_step(
    saved: dict[int, float], is_saved: bool
) -> None:
    view = evaluated({"eval_reward": 1.0}, {"eval_reward": 2.0}, saved=saved)
    assert view is not None
    assert view.best_saved is is_saved


@pytest.mark.parametrize(("count", "best", "points"), [
    (1, 0, 1),
    (MAX_POINTS, 7, MAX_POINTS),
    (2 * MAX_POINTS, 0, MAX_POINTS),
    (2 * MAX_POINTS, 2 * MAX_POINTS - 1, MAX_POINTS),
    (3 * MAX_POINTS, 1001, MAX_POINTS + 1),
])  # fmt: skip
def test_many_are_spread_evenly_and_the_best_stays(count: int, best: int, points: int) -> None:
    build = TraceBuilder().step(0, 1, 0.0, {"train": 1.0})
    for number in range(count):
        build.metrics(number, eval_reward=1.0 if number == best else 0.0)
    view = evaluation(analyse(build.build()))
    assert view is not None
    assert len(view.steps) == points
    assert (view.steps[0], view.steps[-1]) == (0, count - 1)
    assert view.values[view.steps.index(best)] == 1.0
