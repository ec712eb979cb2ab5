"""Means of neighbouring steps: where they are, and the shares that they come to."""

from __future__ import annotations

from typing import Any

import pytest

from grpo_doctor_reports.charts.lanes import shares
from tests.unit.reports.charts.built import report

TWO: dict[str, Any] = {
    "first": [1, 2], "last": [1, 4], "steps": [1, 3], "used": [False, True],
    "kind": ["warmup", "steady"], "start_s": [0.0, 9.0], "end_s": [9.0, 15.0],
}  # fmt: skip


def test_shares_are_over_the_steps_that_are_used_each_counting_once() -> None:
    more = {
        "first": [1, 2, 5], "last": [1, 4, 5], "steps": [1, 3, 1], "used": [False, True, True],
        "kind": ["warmup", "steady", "steady"], "start_s": [0.0] * 3, "end_s": [1.0] * 3,
    }  # fmt: skip
    steps = report(step_buckets={
        **more, "seconds": [50.0, 2.0, 4.0],
        "phase_seconds": {"rollout": [10.0, 0.5, 1.0], "train": [40.0, 1.0, None]},
        "wait_seconds": {"rollout": [5.0, 0.25, None]},
    }).views.step_buckets  # fmt: skip
    assert shares(steps) == (4, [("rollout", 0.25, 0.075), ("train", 0.3, 0.0)])


def test_where_no_step_is_used_all_are_shown() -> None:
    buckets = {**TWO, "used": [False, False], "seconds": [1.0, 1.0]}
    steps = report(
        step_buckets={**buckets, "phase_seconds": {"train": [1.0, 0.0]}}
    ).views.step_buckets
    assert shares(steps) == (4, [("train", 0.25, 0.0)])


@pytest.mark.parametrize("seconds", [[0.0, 0.0], [None, None]])
def test_without_a_length_there_are_no_shares(seconds: list[float | None]) -> None:
    steps = report(step_buckets={**TWO, "seconds": seconds, "phase_seconds": {"train": [1.0, 1.0]}})
    assert shares(steps.views.step_buckets) == (0, [])
