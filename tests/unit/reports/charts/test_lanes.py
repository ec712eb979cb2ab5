"""The run over time: which lanes are drawn, in how much room, and what is said of them."""

from __future__ import annotations

from typing import Any

import pytest

from grpo_doctor_reports.charts.figure import Chart
from grpo_doctor_reports.charts.lanes import lanes_chart, lanes_shown
from grpo_doctor_reports.schema.report import read_report
from tests.demo_reports.drawn import with_drawn
from tests.unit.reports.charts.built import boxes, numbers, report, traces


def test_a_rank_that_left_no_phase_is_named() -> None:
    bands = [{"rank": 0, "phase": "train", "start_s": 0.0, "end_s": 9.0}]
    ranks = [{"rank": rank} for rank in (0, 60, 61, 62, 63)]
    views = with_drawn({"timeline": {"bands": bands}})
    document = {"schema": 1, "run": {"ranks": ranks}, "views": views}
    chart = lanes_chart(read_report(document))
    assert chart is not None
    assert chart.note == "Ranks 60\u201363 recorded no phases."


def test_an_open_band_is_marked_and_sub_spans_lie_in_their_phase() -> None:
    bands = [
        {"rank": 1, "phase": "rollout", "start_s": 3.0, "end_s": 9.0, "open": True},
        {"rank": 1, "phase": "rollout/generate", "start_s": 3.0, "end_s": 9.0, "open": True},
    ]
    chart = lanes_chart(report(timeline={"end_s": 9.0, "bands": bands}))
    assert chart is not None
    outer, inner = traces(chart.figures["lanes"], phase="rollout")
    assert (outer["meta"]["names"], inner["meta"]["names"]) == (["rollout"], ["rollout/generate"])
    assert boxes(outer) == [(3, 9, -0.44, 0.44)]
    assert boxes(inner) == [(3, 9, 0, 0.44)]
    (still_open,) = traces(chart.figures["lanes"], open=True)
    assert boxes(still_open) == [*boxes(outer), *boxes(inner)]
    assert chart.summary == "Recorded phases of 1 rank over 9 s: rollout 100%."


def band(
    rank: int, phase: str = "train", start_s: float = 0.0, end_s: float = 1.0
) -> dict[str, Any]:
    return {"rank": rank, "phase": phase, "start_s": start_s, "end_s": end_s}


def step(number: int, seconds: float = 1.0) -> dict[str, Any]:
    return {"number": number, "start_s": float(number), "end_s": number + seconds}


def buckets(steps: list[int], **more: Any) -> dict[str, Any]:
    """One after the other, each of so many steps."""
    count = len(steps)
    return {
        "first": list(range(count)), "last": list(range(count)), "steps": steps,
        "used": [True] * count, "kind": ["steady"] * count,
        "start_s": [float(at) for at in range(count)], "end_s": [at + 1.0 for at in range(count)],
        **more,
    }  # fmt: skip


def drawn(**views: Any) -> Chart:
    chart = lanes_chart(report(**views))
    assert chart is not None
    return chart


AXIS, LANE, LEAST, MOST = 44, 40, 80, 600


@pytest.mark.parametrize(
    ("lanes", "body"), [(1, LEAST), (3, 3 * LANE), (15, MOST), (16, MOST), (64, MOST)]
)
def test_the_height_is_that_of_the_lanes_within_bounds(lanes: int, body: int) -> None:
    timeline = {"bands": [band(rank) for rank in range(lanes)]}
    assert drawn(timeline=timeline).figures["lanes"]["layout"]["height"] == AXIS + body


def test_sixty_four_lanes_are_drawn_those_of_the_means_first() -> None:
    timeline = {"bands": [band(rank) for rank in range(70)], "ranks": {**RANKS, "ranks": [4, 69]}}
    shown = lanes_shown(report(timeline=timeline).views.timeline)
    assert len(shown) == 64
    assert {4, 69} < set(shown)


RANKS = buckets([1, 1], ranks=[4, 2], phase_seconds={"train": [[1.0, 1.0], [1.0, 1.0]]})


def test_lanes_of_means_alone_are_a_chart_where_steps_have_times() -> None:
    chart = drawn(timeline={"ranks": RANKS}, steps=[step(1)])
    assert len(traces(chart.figures["lanes"], phase="train", far=True)) == 1
    empty = report(timeline={"ranks": RANKS})
    assert lanes_chart(empty) is None
    assert lanes_chart(report(steps=[step(1)])) is None


def test_lanes_without_a_span_are_a_chart_where_steps_have_times() -> None:
    exact = {"lanes": [{"rank": 0}]}
    assert lanes_chart(report(timeline={"exact": exact})) is None
    assert drawn(timeline={"exact": exact}, steps=[step(1)]).figures


def test_every_rank_of_either_kind_has_a_lane() -> None:
    timeline = {"ranks": RANKS, "bands": [band(2), band(9)]}
    assert lanes_shown(report(timeline=timeline).views.timeline) == [2, 4, 9]


def test_shares_are_said_from_a_two_thousandth_and_waiting_from_a_two_hundredth() -> None:
    steps = buckets(
        [3],
        seconds=[2_000.0],
        phase_seconds={"train": [1_989.0], "rollout": [10.0], "sync": [1.0], "offload": [0.9]},
        wait_seconds={"train": [9.0], "rollout": [10.0]},
    )
    sentence = "Mean of 1 rank over 3 steps: train 99%, rollout 0.5% (0.5% waiting), sync <0.1%."
    assert drawn(timeline={"bands": [band(0)]}, step_buckets=steps).summary == sentence


def test_the_mean_is_over_all_ranks_also_those_without_a_lane() -> None:
    means = {"ranks": [0, 1, 2], "own_seconds": [1.0, 2.0, 3.0]}
    steps = buckets([1], seconds=[1.0], phase_seconds={"train": [1.0]})
    chart = drawn(
        timeline={"bands": [band(0)]}, step_buckets=steps, heatmap={"ranks": [0], "means": means}
    )
    assert chart.summary == "Mean of 3 ranks over 1 step: train 100%."
    assert chart.note == ("1 of 3 ranks are drawn, the slowest of each 3; the mean is over all.")
    alike = drawn(timeline={"bands": [band(rank) for rank in range(3)]}, heatmap={"means": means})
    assert alike.note == ""


def test_without_steps_the_outermost_spans_are_added_up() -> None:
    bands = [
        band(0, "train", 1.0, 3.0), band(0, "train/forward", 1.0, 2.5),
        band(1, "train", 2.0, 3.0), band(0, "rollout", 3.0, 8.0),
        *(band(1, f"p{at}", 3.0, 3.5) for at in range(4)),
    ]  # fmt: skip
    chart = drawn(timeline={"end_s": 8.0, "bands": bands})
    assert chart.summary == (
        "Recorded phases of 2 ranks over 8 s: rollout 50%, train 30%, p0 5%, p1 5%."
    )


def test_ranks_without_a_phase_are_named_one_or_several() -> None:
    for silent, subject in (([3], "Rank 3"), ([3, 4], "Ranks 3\u20134")):
        document = {
            "schema": 1,
            "run": {"ranks": [{"rank": rank} for rank in (0, 1, *silent)]},
            "views": with_drawn(
                {
                    "timeline": {"bands": [band(0)]},
                    "heatmap": {"means": {"ranks": [1], "own_seconds": [1.0]}},
                }
            ),
        }
        chart = lanes_chart(read_report(document))
        assert chart is not None
        assert chart.note == f"{subject} recorded no phases."


COLUMN = "Zoomed out, a column is the mean of up to 2 steps"


@pytest.mark.parametrize(
    ("of_lanes", "of_all", "note"),
    [
        ([1, 1], [1, 1], ""),
        ([2, 1], [1, 2], f"{COLUMN}."),
        (
            [2, 2],
            [1, 3],
            f"{COLUMN} (3 in the lane of the mean).",
        ),
        ([1, 1], [5, 5], ""),
    ],
)
def test_how_many_steps_a_column_stands_for_is_said(
    of_lanes: list[int], of_all: list[int], note: str
) -> None:
    ranks = buckets(of_lanes, ranks=[0], phase_seconds={"train": [[1.0, 1.0]]})
    assert drawn(timeline={"ranks": ranks}, step_buckets=buckets(of_all)).note == note


def window(why: str, step: int | None = None, at: float = 0.0) -> dict[str, Any]:
    return {"why": why, "step": step, "start_s": at, "end_s": at + 1.0}


def exact(*windows: dict[str, Any], **more: Any) -> Chart:
    lane = {"rank": 0, "name": [0], "depth": [0], "start_s": [0.0], "end_s": [1.0], "meeting": [-1]}
    drawing = {"windows": list(windows), "names": ["train"], "lanes": [lane], **more}
    return drawn(timeline={"exact": drawing})


def test_windows_are_gone_to_by_their_names_in_this_order() -> None:
    windows = [
        window("slow", 9), window("end", at=8.0), window("named", 4, 4.0), window("worst", 7, 7.0),
        window("open", 11, 11.0), window("median", 5, 5.0), window("start"), window("named", 6),
        window("slow", 10),
    ]  # fmt: skip
    chart = exact(*windows)
    assert [button["name"] for button in chart.facts["windows"]] == [
        "step that never ended 11", "median step 5", "worst step 7", "step 4", "step 6",
        "time before the steps", "time after the steps",
    ]  # fmt: skip
    assert [button["start"] for button in chart.facts["windows"]][:3] == [11.0, 5.0, 7.0]
    assert chart.note == (
        "Every span is shown in the step that never ended 11; the median step 5; the worst step 7; "
        "step 4; step 6; the time before the steps; the time after the steps; the 2 next slowest "
        "steps."
    )


def test_eight_windows_have_a_button() -> None:
    assert len(exact(*[window("named", at) for at in range(9)]).facts["windows"]) == 8


def test_of_the_whole_run_there_is_no_word_about_windows() -> None:
    assert exact(window("whole")).note == ""
    assert exact().note == ""
    assert exact(window("slow", 1)).note == "Every span is shown in the 1 next slowest step."


def test_spans_that_are_left_out_are_counted_with_the_longest() -> None:
    chart = exact(window("whole"), spans_left_out=3, longest_left_out_s=0.002)
    assert chart.note == "3 spans of at most 2 ms are not shown."


MEETING: dict[str, Any] = {
    "windows": [window("median", 3, 10.0)],
    "names": ["train", "all_reduce"],
    "collectives": ["all_reduce"],
    "lanes": [
        {"rank": rank, "name": [0, 1], "depth": [0, 1], "start_s": [10.0, 10.5 + late],
         "end_s": [11.0, 10.75], "meeting": [-1, 4], "wait_s": waits}
        for rank, late, waits in ((1, 0.0, [10.5, 10.625]), (3, 0.125, []))
    ],
}  # fmt: skip


def test_a_collective_is_linked_from_rank_to_rank_with_a_dot_on_the_last() -> None:
    figure = drawn(timeline={"end_s": 20.0, "exact": MEETING}).figures["lanes"]
    link, dot = figure["data"][-2:]
    assert (numbers(link["x"]), numbers(link["y"])) == ([10.5, 10.625, None], [0, 1, None])
    assert (numbers(dot["x"]), numbers(dot["y"])) == ([10.625], [1])
    (wait,) = (t for t in traces(figure, near=True) if "fillpattern" in t)
    assert boxes(wait) == [(10.5, 10.625, -0.44, 0.0)]
    calls = (t for t in traces(figure, near=True) if t["meta"].get("names") == ["all_reduce"])
    assert [box[2:] for box in boxes(next(calls))] == [(0, 0.44), (1, 1.44)]


def test_single_spans_are_drawn_where_thirty_windows_or_steps_fit() -> None:
    means = {"ranks": RANKS, "end_s": 600.0}
    far = drawn(timeline={**means, "exact": MEETING}, steps=[step(1)]).figures["lanes"]
    assert far["layout"]["meta"]["close"] == 30.0 / 60  # windows of a second, an axis in minutes
    assert drawn(timeline={"exact": MEETING}).figures["lanes"]["layout"]["meta"]["close"] is None
    whole = {**MEETING, "windows": [window("whole")]}
    for many, close in ((31, 60.0), (30, None)):
        steps = buckets([many], seconds=[2.0])
        timeline = {"ranks": RANKS, "exact": whole}
        layout = drawn(timeline=timeline, step_buckets=steps).figures["lanes"]["layout"]
        assert layout["meta"]["close"] == close
