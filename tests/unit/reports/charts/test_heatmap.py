"""Rank by step: own work without waiting, and where most of it is."""

from __future__ import annotations

from typing import Any

import pytest

from grpo_doctor_reports.charts.chart import Chart
from grpo_doctor_reports.charts.heatmap import heatmap_chart
from grpo_doctor_reports.packing import NumberPool
from tests.unit.reports.charts.packed import report, unpacked


def drawn(pool: NumberPool | None = None, **heatmap: Any) -> Chart | None:
    return heatmap_chart(report(heatmap=heatmap).views.heatmap, pool or NumberPool())


TWO: dict[str, Any] = {
    "ranks": [0, 7],
    "steps": [3, 4],
    "step_seconds": [[2.0, 4.0], [3.0, None]],
    "wait_seconds": [[0.5, None], [4.0, 1.0]],
}


def test_own_work_is_what_is_not_waiting_and_never_below_nothing() -> None:
    pool = NumberPool()
    chart = drawn(pool, **TWO)
    assert chart is not None
    shown = {option["label"]: unpacked(pool, option["z"]) for option in chart.data["options"]}
    assert shown == {
        "own work": [1.5, 4.0, 0.0, None],
        "wait": [0.5, None, 4.0, 1.0],
        "step time": [2.0, 4.0, 3.0, None],
    }
    assert chart.data["ranks"] == [0, 7]
    assert unpacked(pool, chart.data["steps"]) == [3, 4]
    assert chart.note == "Own work and phases exclude waiting for other ranks."


def test_a_phase_is_without_its_own_waiting() -> None:
    pool = NumberPool()
    phases = {"train": [[1.0, 2.0], [3.0, 4.0]], "rollout": [[1.0, 1.0], [1.0, 1.0]]}
    waits = {"train": [[0.25, None], [0.0, 1.0]]}
    chart = drawn(pool, **TWO, phase_seconds=phases, phase_wait_seconds=waits)
    assert chart is not None
    train, rollout = (
        next(option for option in chart.data["options"] if option["label"] == name)
        for name in ("train", "rollout")
    )
    assert unpacked(pool, train["z"]) == [0.75, 2.0, 3.0, 3.0]
    assert unpacked(pool, rollout["z"]) == [1.0] * 4


def test_what_is_known_nowhere_is_no_choice() -> None:
    chart = drawn(ranks=[0], steps=[1], step_seconds=[[2.0]], wait_seconds=[[None]])
    assert chart is not None
    assert [option["label"] for option in chart.data["options"]] == ["own work", "step time"]


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
    return chart.summary.removesuffix("The longest own work in a step is 4 s (rank 0, step 4).")


def test_who_works_longest_is_said_of_several_ranks() -> None:
    means = {"ranks": [0, 7], "own_seconds": [1.0, 2.0], "wait_seconds": [3.0, 0.5]}
    assert summary(**means) == (
        "Own work per step is 1.50 s in the mean of 2 ranks, most on rank 7 with 2 s. "
        "Mean wait per step runs from 500 ms (rank 7) to 3 s (rank 0). "
    )


def test_of_one_rank_there_is_nothing_to_compare() -> None:
    alone: dict[str, Any] = {"ranks": [0], "own_seconds": [1.0], "wait_seconds": [3.0]}
    assert summary(**alone) == "Own work per step is 1 s in the mean. "
    means = {"ranks": [0, 7], "own_seconds": [1.0, None], "wait_seconds": [None, 0.5]}
    assert summary(**means) == "Own work per step is 1 s in the mean. "
    assert summary(ranks=[0, 7]) == ""


def test_the_longest_cell_is_named() -> None:
    chart = drawn(**TWO)
    assert chart is not None
    assert chart.summary.endswith("The longest own work in a step is 4 s (rank 0, step 4).")


@pytest.mark.parametrize(
    ("ranks", "total", "note"),
    [
        (128, 2, ""),
        (129, 2, "128 of 129 ranks: of every 1.0 the one that works longest."),
        (256, 2, "128 of 256 ranks: of every 2 the one that works longest."),
        (2, 3, "Of every 1.5 steps the slowest is drawn."),
    ],
)
def test_what_stands_for_others_is_said(ranks: int, total: int, note: str) -> None:
    pool = NumberPool()
    chart = drawn(
        pool, ranks=list(range(ranks)), steps=[1, 2], step_seconds=[[1.0, 2.0]] * ranks,
        steps_total=total,
    )  # fmt: skip
    assert chart is not None
    assert chart.note == note
    assert len(chart.data["ranks"]) == min(128, ranks)
    assert len(unpacked(pool, chart.data["options"][0]["z"])) == 2 * min(128, ranks)
