"""The mean step as bars: what they say of their phase, and what is said of all."""

from __future__ import annotations

from typing import Any

from grpo_doctor_reports.charts.figure import Chart
from grpo_doctor_reports.charts.waterfall import waterfall_chart
from grpo_doctor_reports.time_words import with_bounded_kinds
from tests.unit.reports.charts.built import report, traces


def drawn(*bars: dict[str, Any]) -> Chart:
    chart = waterfall_chart(
        [with_bounded_kinds(bar) for bar in report(waterfall=list(bars)).views.waterfall]
    )
    assert chart is not None
    return chart


TRAIN = {"phase": "train", "start_s": 2.0, "seconds": 3.0, "wait_seconds": 0.5}


def test_a_bar_has_work_transfer_and_all_that_is_neither() -> None:
    bar = {**TRAIN, "transfer_seconds": 0.25, "idle_seconds": 0.125, "p10_s": 2.5, "p90_s": 4.0}
    figure = drawn(bar).figures["waterfall"]
    work, transfer, wait = traces(figure, phase="train")
    assert [(part["base"], part["x"]) for part in (work, transfer, wait)] == [
        ([2.0], [2.125]), ([4.125], [0.25]), ([4.375], [0.625]),
    ]  # fmt: skip
    whiskers, label = figure["data"][3:]
    assert (whiskers["error_x"]["arrayminus"], whiskers["error_x"]["array"]) == ([0.5], [1.0])
    assert label["text"] == ["  3 s"]
    assert work["hovertext"][0].split("<br>") == [
        "train: 3 s", "work 2.12 s, wait 500 ms", "transfer 250 ms, idle 125 ms", "starts at 2 s",
        "p10 2.50 s, p90 4 s",
    ]  # fmt: skip


def test_what_is_zero_or_unknown_is_not_mentioned() -> None:
    for ends in ({}, {"p10_s": 2.5}, {"p90_s": 4.0}):
        bar, *_ = traces(drawn({**TRAIN, **ends}).figures["waterfall"], phase="train")
        assert bar["hovertext"] == ["train: 3 s<br>work 2.50 s, wait 500 ms<br>starts at 2 s"]


def test_the_step_ends_where_its_last_bar_does() -> None:
    rollout = {"phase": "rollout", "start_s": 0.5, "seconds": 6.0}
    assert drawn(rollout, TRAIN).summary == (
        "The mean step takes 6.50 s. Its longest phase is rollout: 6 s, starting at 500 ms."
    )


def test_forty_bars_are_drawn_and_the_summary_is_of_all() -> None:
    bars = [{"phase": f"p{at}", "start_s": float(at), "seconds": 1.0} for at in range(41)]
    bars[40]["seconds"] = 5.0
    chart = drawn(*bars)
    assert len(chart.figures["waterfall"]["layout"]["yaxis"]["ticktext"]) == 40
    assert "Its longest phase is p40: 5 s" in chart.summary
