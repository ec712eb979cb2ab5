"""Every step over time: the worst of them, and the buckets that are drawn."""

from __future__ import annotations

from typing import Any

import pytest

from grpo_doctor_reports.charts.chart import Chart
from grpo_doctor_reports.charts.steps import slowest_ranks, steps_chart
from grpo_doctor_reports.packing import NumberPool
from tests.unit.reports.charts.packed import report, unpacked


def step(number: int, seconds: float, kind: str = "steady") -> dict[str, object]:
    start = 10.0 * number
    return {"number": number, "start_s": start, "end_s": start + seconds, "seconds": seconds,
            "kind": kind, "slowest_rank": 1}  # fmt: skip


def test_the_worst_steps_are_steady_ones_longest_first_against_their_median() -> None:
    steps = [step(1, 9.0, "warmup"), step(2, 2.0), step(3, 6.0), step(4, 2.5)]
    chart = steps_chart(report(steps=steps).views, NumberPool())
    assert chart is not None
    assert chart.data["worst"] == [2, 3, 1]
    assert chart.data["median"] == 2.5
    assert chart.summary == (
        "Slowest of 3 steps: step 3, 6 s (+140% vs. the median of 2.50 s), "
        "on rank 1. Excludes 1 warmup."
    )


def test_a_steps_phases_stand_next_to_the_median_of_steady_steps() -> None:
    heatmap = {"ranks": [0, 1], "steps": [1, 2, 3], "step_seconds": [[9.0, 2.0, 6.0]] * 2,
               "phase_seconds": {"train": [[5.0, 1.0, 2.0], [5.0, 1.0, 4.0]]}}  # fmt: skip
    steps = [step(1, 9.0, "warmup"), step(2, 2.0), step(3, 6.0)]
    pool = NumberPool()
    chart = steps_chart(report(heatmap=heatmap, steps=steps).views, pool)
    assert chart is not None
    assert [phase["median"] for phase in chart.data["phases"]] == [2.0]


def test_the_slowest_ranks_are_those_that_work_longest_not_those_that_wait() -> None:
    means = {"ranks": [0, 1, 2], "own_seconds": [4.0, 8.5, 1.0], "wait_seconds": [5.0, 0.5, 8.0]}
    assert slowest_ranks(report(heatmap={"means": means}).views.heatmap) == [1]


def drawn(pool: NumberPool | None = None, **views: Any) -> Chart:
    chart = steps_chart(report(**views).views, pool or NumberPool())
    assert chart is not None
    return chart


def test_each_step_has_its_times_its_kind_and_its_slowest_rank() -> None:
    pool = NumberPool()
    steps = [step(1, 9.0, "warmup"), {**step(2, 2.0), "slowest_rank": None}]
    data = drawn(pool, steps=steps).data
    shown = {name: unpacked(pool, data[name]) for name in ("number", "start", "end", "seconds")}
    assert shown == {"number": [1, 2], "start": [10, 20], "end": [19, 22], "seconds": [9, 2]}
    assert unpacked(pool, data["slowest"]) == [1, -1]
    assert data["kinds"] == ["steady", "warmup"]
    assert unpacked(pool, data["kind"]) == [1, 0]


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
    assert chart.data["worst"] == [0, 1]
    assert chart.summary == (
        "Slowest of 2 steps: step 1, 4 s (+33% vs. the median of 3 s), on rank 1."
    )


def test_without_a_median_there_is_nothing_to_compare_with() -> None:
    assert drawn(steps=[step(1, 0.0)]).summary == ("Slowest of 1 step: step 1, 0 s, on rank 1.")


@pytest.mark.parametrize(("steady", "worst"), [(100, 100), (101, 100), (3, 3)])
def test_a_hundred_worst_steps_can_be_stepped_through(steady: int, worst: int) -> None:
    steps = [step(at, 1.0 + at) for at in range(steady)]
    assert drawn(steps=steps).data["worst"] == list(range(steady))[::-1][:worst]


BUCKETS: dict[str, Any] = {
    "first": [1, 2], "last": [1, 4], "steps": [1, 3], "used": [False, True],
    "kind": ["warmup", "steady"], "start_s": [10.0, 20.0], "end_s": [19.0, 26.0],
    "seconds": [9.0, 2.0], "worst_seconds": [9.0, 3.0], "worst_step": [1, 4],
    "worst_rank": [None, 5], "phase_seconds": {"train": [4.0, 1.0]}, "median_seconds": 2.0,
}  # fmt: skip


def test_buckets_have_a_mean_and_their_worst_step() -> None:
    pool = NumberPool()
    steps = [step(1, 9.0, "warmup"), step(2, 2.0), step(3, 1.0), step(4, 3.0)]
    chart = drawn(pool, steps=steps, step_buckets=BUCKETS)
    data = chart.data["buckets"]
    names = ("seconds", "worst", "worstStep", "worstRank")
    assert [unpacked(pool, data[name]) for name in names] == [[9, 2], [9, 3], [1, 4], [-1, 5]]
    assert [name["name"] for name in data["names"]] == ["train", "unattributed"]
    assert chart.summary.startswith("Slowest of 3 steps: step 4, 3 s (+50% vs. ")
    assert chart.summary.endswith(" Excludes 1 warmup.")
    assert chart.note.endswith(" Even zoomed in, up to 3 steps share one.")


def test_closer_each_step_has_a_bar_where_none_share_one() -> None:
    assert drawn(steps=[step(1, 1.0)]).note.endswith(" Zoom in for one bar per step.")


def test_phases_without_a_median_are_not_compared() -> None:
    pool = NumberPool()
    phases = {"train": [[1.0, None], [3.0, None]], "sync": [[None, None]] * 2}
    heatmap = {
        "ranks": [0, 1], "steps": [1, 2], "step_seconds": [[1.0, 2.0]] * 2, "phase_seconds": phases,
    }  # fmt: skip
    steps = [step(1, 1.0), step(2, 2.0), step(3, 1.0)]
    (phase,) = drawn(pool, steps=steps, heatmap=heatmap).data["phases"]
    assert (phase["name"], phase["median"]) == ("train", 2.0)
    assert unpacked(pool, phase["v"]) == [2.0, None, None]


@pytest.mark.parametrize(
    ("ranks", "numbers"), [(1, [0]), (15, [14]), (16, [15, 14]), (200, list(range(199, 191, -1)))]
)
def test_an_eighth_of_the_ranks_is_named_up_to_eight(ranks: int, numbers: list[int]) -> None:
    own: list[float | None] = [float(rank) for rank in range(ranks)]
    means = {"ranks": list(range(ranks)), "own_seconds": own}
    assert slowest_ranks(report(heatmap={"means": means}).views.heatmap) == numbers
    unknown = {"ranks": [0, 1], "own_seconds": [None, 1.0]}
    assert slowest_ranks(report(heatmap={"means": unknown}).views.heatmap) == [1]
