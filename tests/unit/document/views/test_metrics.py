"""Training metrics by step, small enough for a page."""

from __future__ import annotations

import pytest

from grpo_doctor.document.views.metrics import MAX_POINTS, MAX_SERIES, metrics_view
from grpo_doctor_reports.schema.views import MetricsView
from tests.build import TraceBuilder


def logged(steps: int) -> MetricsView:
    build = TraceBuilder()
    for step in range(steps):
        build.metrics(step, reward=float(step))
    return metrics_view(build.build())


@pytest.mark.parametrize(("steps", "points"), [
    (0, 0), (1, 1), (MAX_POINTS - 1, MAX_POINTS - 1), (MAX_POINTS, MAX_POINTS),
    (MAX_POINTS + 1, MAX_POINTS), (3 * MAX_POINTS, MAX_POINTS),
])  # fmt: skip
def test_of_many_steps_evenly_spread_ones_are_drawn(steps: int, points: int) -> None:
    view = logged(steps)
    assert len(view.steps) == points
    assert view.steps == sorted(set(view.steps))
    if steps:
        assert (view.steps[0], view.steps[-1]) == (0, steps - 1)
        assert view.series["reward"] == view.steps


def test_what_is_known_at_no_step_is_left_out_and_gaps_stay() -> None:
    build = TraceBuilder()
    build.metrics(3, reward=1.0, kl=float("nan")).metrics(5, kl=float("inf"))
    view = metrics_view(build.build())
    assert (view.steps, view.series) == ([3, 5], {"reward": [1.0, None]})


def test_of_very_many_metrics_the_first_are_drawn() -> None:
    names = [f"m{number:03d}" for number in range(MAX_SERIES + 1)]
    view = metrics_view(TraceBuilder().metrics(0, **dict.fromkeys(names, 1.0)).build())
    assert list(view.series) == names[:MAX_SERIES]
