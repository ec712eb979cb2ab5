"""Every step over time: the worst of them, and the buckets that are drawn."""

from __future__ import annotations

from typing import Any

import pytest

from grpo_doctor_reports.charts.figure import Chart
from grpo_doctor_reports.charts.steps import steps_chart
from tests.unit.reports.charts.built import boxes, numbers, report, traces


def step(number: int, seconds: float, kind: str = "steady") -> dict[str, object]:
    start = 10.0 * number
    return {"number": number, "start_s": start, "end_s": start + seconds, "seconds": seconds,
            "kind": kind, "slowest_rank": 1}  # fmt: skip


def test_the_worst_steps_are_steady_ones_longest_first_against_their_median() -> None:
    steps = [step(1, 9.0, "warmup"), step(2, 2.0), step(3, 6.0), step(4, 2.5)]
    chart = steps_chart(report(steps=steps).views)
    assert chart is not None
    assert chart.facts["worst"] == [2, 3, 1]
    assert chart.facts["median"] == 2.5
    assert chart.summary == (
        "Slowest of 3 steps: step 3, 6 s (+140% vs. the median of 2.50 s), "
        "on rank 1. Excludes 1 warm-up step."
    )


def test_a_steps_phases_stand_next_to_the_median_of_steady_steps() -> None:
    heatmap = {"ranks": [0, 1], "steps": [1, 2, 3], "step_seconds": [[9.0, 2.0, 6.0]] * 2,
               "phase_seconds": {"train": [[5.0, 1.0, 2.0], [5.0, 1.0, 4.0]]}}  # fmt: skip
    steps = [step(1, 9.0, "warmup"), step(2, 2.0), step(3, 6.0)]
    chart = steps_chart(report(heatmap=heatmap, steps=steps).views)
    assert chart is not None
    assert [phase["median"] for phase in chart.facts["phases"]] == [2.0]


def drawn(**views: Any) -> Chart:
    chart = steps_chart(report(**views).views)
    assert chart is not None
    return chart


def test_each_step_has_its_times_its_kind_and_its_slowest_rank() -> None:
    steps = [step(1, 9.0, "warmup"), {**step(2, 2.0), "slowest_rank": None}]
    facts = drawn(steps=steps).facts
    shown = {name: numbers(facts[name]) for name in ("number", "start", "end", "seconds")}
    assert shown == {"number": [1, 2], "start": [10, 20], "end": [19, 22], "seconds": [9, 2]}
    assert numbers(facts["slowest"]) == [1, None]
    assert facts["kinds"] == ["warmup", "steady"]


def test_a_step_whose_slowest_rank_is_unknown_is_said_without() -> None:
    steps = [{**step(1, 2.0), "slowest_rank": None}, {**step(2, 1.0), "slowest_rank": 0}]
    assert drawn(steps=steps).summary == (
        "Slowest of 2 steps: step 1, 2 s (+33% vs. the median of 1.50 s)."
    )
    assert drawn(steps=steps[1:]).summary == (
        "Slowest of 1 step: step 2, 1 s (0% vs. the median of 1 s), on rank 0."
    )


def test_without_a_steady_step_all_are_compared() -> None:
    chart = drawn(steps=[step(1, 4.0, "warmup"), step(2, 2.0, "warmup")])
    assert chart.facts["worst"] == [0, 1]
    assert chart.summary == (
        "Slowest of 2 steps: step 1, 4 s (+33% vs. the median of 3 s), on rank 1."
    )


def test_without_a_median_there_is_nothing_to_compare_with() -> None:
    assert drawn(steps=[step(1, 0.0)]).summary == ("Slowest of 1 step: step 1, 0 s, on rank 1.")


@pytest.mark.parametrize(("steady", "worst"), [(100, 100), (101, 100), (3, 3)])
def test_a_hundred_worst_steps_can_be_stepped_through(steady: int, worst: int) -> None:
    steps = [step(at, 1.0 + at) for at in range(steady)]
    assert drawn(steps=steps).facts["worst"] == list(range(steady))[::-1][:worst]


BUCKETS: dict[str, Any] = {
    "first": [1, 2], "last": [1, 4], "steps": [1, 3], "used": [False, True],
    "kind": ["warmup", "steady"], "start_s": [10.0, 20.0], "end_s": [19.0, 26.0],
    "seconds": [9.0, 2.0], "worst_seconds": [9.0, 3.0], "worst_step": [1, 4],
    "worst_rank": [None, 5], "phase_seconds": {"train": [4.0, 1.0]}, "median_seconds": 2.0,
}  # fmt: skip


def test_buckets_have_a_mean_and_their_worst_step() -> None:
    steps = [step(1, 9.0, "warmup"), step(2, 2.0), step(3, 1.0), step(4, 3.0)]
    chart = drawn(steps=steps, step_buckets=BUCKETS)
    figure = chart.figures["steps"]
    assert boxes(traces(figure, phase="train")[0]) == [(10, 19, 0, 4), (20, 26, 0, 1)]
    mark, hover = figure["data"][-2:]
    assert (numbers(mark["x"]), numbers(mark["y"])) == ([20, 26, None], [3, 3, None])
    assert numbers(hover["customdata"]) == [1, 4]
    assert hover["text"] == [
        "step 1: 9 s, +350% vs. median<br>train 4 s<br>warmup, not in the averages",
        "<br>".join(
            [
                "steps 2 to 4: mean 2 s, 0% vs. median",
                "slowest: step 4, 3 s",
                "slowest rank: 5",
                "train 1 s",
            ]
        ),
    ]
    assert chart.summary.startswith("Slowest of 3 steps: step 4, 3 s (+50% vs. ")
    assert chart.summary.endswith(" Excludes 1 warm-up step.")
    assert chart.note == (
        "Each bar is the mean of up to 3 steps; the line above it marks the slowest."
    )


def test_where_each_step_has_a_bar_there_is_no_note() -> None:
    assert drawn(steps=[step(1, 1.0)]).note == ""


def test_phases_without_a_median_are_not_compared() -> None:
    phases = {"train": [[1.0, None], [3.0, None]], "sync": [[None, None]] * 2}
    heatmap = {
        "ranks": [0, 1], "steps": [1, 2], "step_seconds": [[1.0, 2.0]] * 2, "phase_seconds": phases,
    }  # fmt: skip
    steps = [step(1, 1.0), step(2, 2.0), step(3, 1.0)]
    (phase,) = drawn(steps=steps, heatmap=heatmap).facts["phases"]
    assert (phase["name"], phase["median"]) == ("train", 2.0)
    assert numbers(phase["seconds"]) == [2.0, None, None]
