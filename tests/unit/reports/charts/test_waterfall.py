"""The mean step as bars: what they say of their phase, and what is said of all."""

from __future__ import annotations

from typing import Any

from grpo_doctor_reports.charts.chart import Chart
from grpo_doctor_reports.charts.waterfall import waterfall_chart
from grpo_doctor_reports.time_words import with_bounded_kinds
from tests.unit.reports.charts.packed import report


def drawn(*bars: dict[str, Any]) -> Chart:
    chart = waterfall_chart(
        [with_bounded_kinds(bar) for bar in report(waterfall=list(bars)).views.waterfall]
    )
    assert chart is not None
    return chart


TRAIN = {"phase": "train", "start_s": 2.0, "seconds": 3.0, "wait_seconds": 0.5}


def test_a_bar_has_work_transfer_and_all_that_is_neither() -> None:
    bar = {**TRAIN, "transfer_seconds": 0.25, "idle_seconds": 0.125, "p10_s": 2.5, "p90_s": 4.0}
    (row,) = drawn(bar).data["rows"]
    numbers = [row[name] for name in ("start", "work", "transfer", "wait", "p10", "p90")]
    assert numbers == [2.0, 2.125, 0.25, 0.625, 2.5, 4.0]
    assert row["label"] == "3 s"
    assert row["hover"] == [
        "train: 3 s",
        "work 2.12 s, wait 500 ms",
        "transfer 250 ms, idle 125 ms",
        "starts at 2 s",
        "p10 2.50 s, p90 4 s",
    ]


def test_what_is_zero_or_unknown_is_not_said() -> None:
    for ends in ({}, {"p10_s": 2.5}, {"p90_s": 4.0}):
        (row,) = drawn({**TRAIN, **ends}).data["rows"]
        assert (row["p10"], row["p90"]) == (ends.get("p10_s"), ends.get("p90_s"))
        assert row["hover"] == ["train: 3 s", "work 2.50 s, wait 500 ms", "starts at 2 s"]
    (row,) = drawn({**TRAIN, "idle_seconds": 0.5}).data["rows"]
    assert row["hover"][2] == "idle 500 ms"


def test_the_step_ends_where_its_last_bar_does() -> None:
    rollout = {"phase": "rollout", "start_s": 0.5, "seconds": 6.0}
    assert drawn(rollout, TRAIN).summary == (
        "The mean step ends after 6.50 s; its longest phase is rollout with 6 s, starting at "
        "500 ms."
    )


def test_forty_bars_are_drawn_and_all_are_spoken_of() -> None:
    bars = [{"phase": f"p{at}", "start_s": float(at), "seconds": 1.0} for at in range(41)]
    bars[40]["seconds"] = 5.0
    chart = drawn(*bars)
    assert len(chart.data["rows"]) == 40
    assert "its longest phase is p40 with 5 s" in chart.summary


def test_bars_are_drawn_to_six_digits() -> None:
    (row,) = drawn({"phase": "train", "start_s": 1234.56789, "seconds": 1.0}).data["rows"]
    assert row["start"] == 1234.57
