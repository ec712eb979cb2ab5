"""Rank by step: own work without waiting, and where most of it is."""

from __future__ import annotations

from typing import Any

import pytest

from grpo_doctor_reports.charts.figure import Chart
from grpo_doctor_reports.charts.heatmap import heatmap_chart
from tests.unit.reports.charts.built import numbers, report


def drawn(**heatmap: Any) -> Chart | None:
    return heatmap_chart(report(heatmap=heatmap).views.heatmap)


def cells(chart: Chart) -> dict[str, list[list[float | None]]]:
    """Rows of each matrix by its label."""
    traces = chart.figures["heatmap"]["data"]
    shown = [[numbers(row) for row in trace["z"]] for trace in traces]
    return dict(zip(chart.facts["labels"], shown, strict=True))


TWO: dict[str, Any] = {
    "ranks": [0, 7],
    "steps": [3, 4],
    "step_seconds": [[2.0, 4.0], [3.0, None]],
    "wait_seconds": [[0.5, None], [4.0, 1.0]],
}


def test_own_work_is_what_is_not_waiting_and_never_below_nothing() -> None:
    chart = drawn(**TWO)
    assert chart is not None
    assert cells(chart) == {
        "own work": [[1.5, 4.0], [0.0, None]],
        "wait": [[0.5, None], [4.0, 1.0]],
        "step time": [[2.0, 4.0], [3.0, None]],
    }
    first, *others = chart.figures["heatmap"]["data"]
    assert (first["y"], numbers(first["x"])) == (["rank 0", "rank 7"], [3, 4])
    assert [trace["visible"] for trace in (first, *others)] == [True, False, False]
    assert chart.note == "Own work and phases exclude waiting for other ranks."


def test_a_phase_is_without_its_own_waiting() -> None:
    phases = {"train": [[1.0, 2.0], [3.0, 4.0]], "rollout": [[1.0, 1.0], [1.0, 1.0]]}
    waits = {"train": [[0.25, None], [0.0, 1.0]]}
    chart = drawn(**TWO, phase_seconds=phases, phase_wait_seconds=waits)
    assert chart is not None
    assert cells(chart)["train"] == [[0.75, 2.0], [3.0, 3.0]]
    assert cells(chart)["rollout"] == [[1.0, 1.0]] * 2


def test_what_is_known_nowhere_is_no_choice() -> None:
    chart = drawn(ranks=[0], steps=[1], step_seconds=[[2.0]], wait_seconds=[[None]])
    assert chart is not None
    assert chart.facts["labels"] == ["own work", "step time"]


@pytest.mark.parametrize(
    "heatmap",
    [
        {"ranks": [], "steps": [1]},
        {"ranks": [0], "steps": [], "step_seconds": [[]]},
        {"ranks": [0], "steps": [1], "step_seconds": [[None]]},
    ],
)
def test_without_a_rank_a_step_or_a_number_there_is_no_chart(heatmap: dict[str, Any]) -> None:
    assert drawn(**heatmap) is None


def summary(**means: Any) -> str:
    chart = drawn(**TWO, means=means)
    assert chart is not None
    return chart.summary.removesuffix("Most own work in one step: 4 s (rank 0, step 4).")


def test_who_works_longest_is_said_of_several_ranks() -> None:
    means = {"ranks": [0, 7], "own_seconds": [1.0, 2.0], "wait_seconds": [3.0, 0.5]}
    assert summary(**means) == (
        "Own work averages 1.50 s per step over 2 ranks; rank 7 has the most, 2 s. "
        "Average wait per step ranges from 500 ms (rank 7) to 3 s (rank 0). "
    )


def test_of_one_rank_there_is_nothing_to_compare() -> None:
    alone: dict[str, Any] = {"ranks": [0], "own_seconds": [1.0], "wait_seconds": [3.0]}
    assert summary(**alone) == "Own work averages 1 s per step. "
    means = {"ranks": [0, 7], "own_seconds": [1.0, None], "wait_seconds": [None, 0.5]}
    assert summary(**means) == "Own work averages 1 s per step. "
    assert summary(ranks=[0, 7]) == ""


def test_the_longest_cell_is_named() -> None:
    chart = drawn(**TWO)
    assert chart is not None
    assert chart.summary.endswith("Most own work in one step: 4 s (rank 0, step 4).")


@pytest.mark.parametrize(
    ("ranks", "total", "note"),
    [
        (128, 2, ""),
        (129, 2, "Shows 128 of 129 ranks: of every 1.0 the one with the most work."),
        (256, 2, "Shows 128 of 256 ranks: of every 2 the one with the most work."),
        (2, 3, "Shows the slowest of every 1.5 steps."),
    ],
)
def test_what_stands_for_others_is_said(ranks: int, total: int, note: str) -> None:
    chart = drawn(
        ranks=list(range(ranks)), steps=[1, 2], step_seconds=[[1.0, 2.0]] * ranks,
        steps_total=total,
    )  # fmt: skip
    assert chart is not None
    assert chart.note == note
    assert [len(row) for row in cells(chart)["step time"]] == [2] * min(128, ranks)


def test_a_few_slow_steps_do_not_bleach_the_rest() -> None:
    chart = drawn(
        ranks=[0], steps=list(range(100)), step_seconds=[[2.0] * 50 + [3.0] * 49 + [99.0]]
    )
    assert chart is not None
    trace = chart.figures["heatmap"]["data"][0]
    assert (trace["zmin"], trace["zmax"]) == (2.0, 3.0)
