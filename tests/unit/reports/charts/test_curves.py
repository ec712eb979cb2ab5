"""Learning curves: which are drawn, in which order, and what is said of them."""

from __future__ import annotations

from typing import Any

import pytest

from grpo_doctor_reports.charts.curves import curves_chart
from tests.unit.reports.charts.built import numbers, report


def test_reward_and_loss_come_first_and_the_rest_is_counted() -> None:
    series = {f"m{at:02}": [1.0, 2.0] for at in range(30)}
    metrics = {"steps": [1, 2], "series": {**series, "loss": [3.0, 1.0], "reward": [None, 0.5]}}
    chart = curves_chart(report(metrics=metrics).views.metrics)
    assert chart is not None
    assert [curve["label"] for curve in chart.facts["curves"]][:3] == ["reward", "loss", "m00"]
    assert chart.note == "8 more metrics not drawn."
    assert chart.summary.startswith("reward goes from 0.500 to 0.500; loss goes from 3 to 1;")


def test_a_metric_that_never_changes_is_said_instead_of_drawn() -> None:
    series = {"reward": [1.0, 1.0], "kl": [0.1, 0.2], "learning_rate": [0.003, 0.003]}
    chart = curves_chart(report(metrics={"steps": [1, 2], "series": series}).views.metrics)
    assert chart is not None
    assert [curve["label"] for curve in chart.facts["curves"]] == ["reward", "kl"]
    assert chart.note == "Constant: learning_rate 0.00300."


EVALUATION = {
    "metric": "eval_reward",
    "steps": [2, 4, 6],
    "values": [0.25, 0.75, 0.5],
    "best_step": 4,
    "best_saved": True,
}


def test_evaluations_are_drawn_over_the_reward_of_training() -> None:
    series = {"eval_reward": [None, 0.25], "loss": [1.0, 2.0], "reward": [0.1, 0.2]}
    views = report(metrics={"steps": [1, 2], "series": series}, evaluation=EVALUATION).views
    chart = curves_chart(views.metrics, views.evaluation)
    assert chart is not None
    reward, loss = chart.facts["curves"]
    assert (reward["label"], loss["label"]) == ("reward", "loss")
    assert reward["evaluation"] == {"last": "0.500", "words": "best 0.750 after step 4, saved"}
    points = chart.figures["reward"]["data"][-1]
    assert (numbers(points["x"]), numbers(points["y"])) == ([2, 4, 6], [0.25, 0.75, 0.5])
    assert points["marker"]["symbol"] == ["circle", "star", "circle"]
    assert "evaluation" not in loss
    assert chart.summary.endswith(
        "evaluation goes from 0.250 to 0.500, best 0.750 after step 4, saved."
    )


def test_evaluations_without_a_reward_of_training_have_their_own_chart() -> None:
    series = {"eval_reward": [None, 0.25], "loss": [1.0, 2.0]}
    views = report(metrics={"steps": [1, 2], "series": series}, evaluation=EVALUATION).views
    chart = curves_chart(views.metrics, views.evaluation)
    assert chart is not None
    assert [curve["label"] for curve in chart.facts["curves"]] == ["loss", "eval_reward"]


@pytest.mark.parametrize(
    "odd", [{"best_step": 5}, {"best_step": None}, {"values": [0.2, None, 0.5]}]
)
def test_a_best_step_without_a_value_is_no_evaluation(odd: dict[str, Any]) -> None:
    views = report(
        metrics={"steps": [1, 2], "series": {"reward": [0.1, 0.2]}},
        evaluation={**EVALUATION, **odd},
    ).views
    chart = curves_chart(views.metrics, views.evaluation)
    assert chart is not None
    assert "evaluation" not in chart.facts["curves"][0]
    assert chart.summary == "reward goes from 0.100 to 0.200."


RISES: list[float | None] = [1.0, 2.0]


def drawn(steps: int, **series: list[float | None]) -> tuple[list[str], str]:
    """What is drawn, and the note."""
    views = report(metrics={"steps": list(range(steps)), "series": series}).views
    chart = curves_chart(views.metrics)
    assert chart is not None
    return [curve["label"] for curve in chart.facts["curves"]], chart.note


@pytest.mark.parametrize(("count", "note"), [(24, ""), (25, "1 more metric not drawn.")])
def test_two_dozen_metrics_are_drawn(count: int, note: str) -> None:
    labels, shown_note = drawn(2, **dict.fromkeys((f"m{at:02}" for at in range(count)), RISES))
    assert (len(labels), shown_note) == (24, note)


@pytest.mark.parametrize(("count", "more"), [(16, ""), (17, " and 1 more"), (20, " and 4 more")])
def test_of_what_never_changes_sixteen_are_named(count: int, more: str) -> None:
    flat: dict[str, list[float | None]] = {f"f{at:02}": [2.0, None, 2.0] for at in range(count)}
    labels, note = drawn(3, kl=[1.0, 2.0, 3.0], **flat)
    assert labels == ["kl"]
    listing = ", ".join(f"f{at:02} 2" for at in range(16))
    assert note == f"Constant: {listing}{more}."


def test_where_nothing_changes_all_is_drawn() -> None:
    assert drawn(2, b=[1.0, 1.0], a=[2.0, 2.0]) == (["a", "b"], "")


def test_one_value_is_no_line_that_never_changes() -> None:
    assert drawn(2, b=[1.0, None], a=[1.0, 2.0]) == (["a", "b"], "")


def test_metrics_that_everybody_looks_at_come_first() -> None:
    names = ("aaa", "grad_norm", "kl", "loss", "reward", "zzz")
    labels, _ = drawn(2, **dict.fromkeys(names, RISES))
    assert labels == ["reward", "loss", "kl", "grad_norm", "aaa", "zzz"]


def test_a_curve_has_its_steps_and_its_last_known_value() -> None:
    series = {"steps": [5, 7, 9], "series": {"loss": [3.0, 1.5, None]}}
    chart = curves_chart(report(metrics=series).views.metrics)
    assert chart is not None
    (curve,) = chart.facts["curves"]
    (drawn,) = chart.figures["loss"]["data"]
    assert (numbers(drawn["x"]), numbers(drawn["y"])) == ([5, 7, 9], [3.0, 1.5, None])
    assert curve["last"] == "1.50"
    assert chart.summary == "loss goes from 3 to 1.50."


@pytest.mark.parametrize(("steps", "points"), [(250, 250), (251, 250)])
def test_a_long_curve_is_thinned(steps: int, points: int) -> None:
    series = {"steps": list(range(steps)), "series": {"loss": [float(at) for at in range(steps)]}}
    chart = curves_chart(report(metrics=series).views.metrics)
    assert chart is not None
    *area, drawn = chart.figures["loss"]["data"]
    assert len(numbers(drawn["x"])) == len(numbers(drawn["y"])) == points
    assert bool(area) == (steps > points)


def test_three_curves_are_spoken_of() -> None:
    series = {name: [1.0, 2.0] for name in ("reward", "loss", "kl", "entropy")}
    chart = curves_chart(report(metrics={"steps": [1, 2], "series": series}).views.metrics)
    assert chart is not None
    assert chart.summary == ("reward goes from 1 to 2; loss goes from 1 to 2; kl goes from 1 to 2.")
