from __future__ import annotations

from grpo_doctor.analysis import analyse
from grpo_doctor.document.views.metrics import MAX_POINTS, evaluation
from grpo_doctor_reports.schema.views import Evaluation
from tests.build import TraceBuilder


def evaluated(rewards: dict[int, float], saved: int | None = None) -> Evaluation | None:
    build = TraceBuilder(ranks=1, framework="bundled")
    for number in range(1, 9):
        phases = {"train": 5.0, "checkpoint": 1.0} if number == saved else {"train": 5.0}
        build.step(0, number, 10.0 * number, phases)
        build.metrics(number, reward=0.1 * number)
    for number, reward in rewards.items():
        build.metrics(number, reward=0.1 * number, eval_reward=reward)
    return evaluation(analyse(build.build()))


def test_the_first_of_the_best_is_marked() -> None:
    view = evaluated({2: 0.25, 4: 0.5, 6: 0.5, 8: 0.4}, saved=4)
    assert view is not None
    assert (view.metric, view.steps, view.values) == (
        "eval_reward",
        [2, 4, 6, 8],
        [0.25, 0.5, 0.5, 0.4],
    )
    assert (view.best_step, view.best_saved) == (4, True)


def test_a_checkpoint_of_another_step_is_none_of_the_best() -> None:
    view = evaluated({2: 0.25, 4: 0.5}, saved=2)
    assert view is not None
    assert not view.best_saved


def test_without_evaluations_there_is_none() -> None:
    assert evaluated({}) is None
    assert evaluated({2: float("nan")}) is None


def test_of_many_evaluations_the_best_stays() -> None:
    build = TraceBuilder(ranks=1)
    build.step(0, 1, 0.0, {"train": 1.0})
    for number in range(5 * MAX_POINTS):
        build.metrics(number, eval_loss=0.5 if number == 1237 else 1.0)
    view = evaluation(analyse(build.build()))
    assert view is not None
    assert (view.metric, view.best_step) == ("eval_loss", 1237)
    assert len(view.steps) <= MAX_POINTS + 1
    assert view.values[view.steps.index(1237)] == 0.5
