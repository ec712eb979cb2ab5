from __future__ import annotations

import json

import pytest

from grpo_doctor_reports.charts.curves import curves_chart
from grpo_doctor_reports.charts.heatmap import heatmap_chart
from grpo_doctor_reports.charts.lanes import lanes_chart
from grpo_doctor_reports.charts.steps import steps_chart
from grpo_doctor_reports.charts.strips import strips_chart
from grpo_doctor_reports.charts.waterfall import waterfall_chart
from grpo_doctor_reports.packing import NumberPool
from grpo_doctor_reports.schema.report import ReportDocument, read_report
from tests.demo_reports import DEMOS
from tests.unit.reports.charts.packed import report


@pytest.fixture(scope="module")
def slow() -> ReportDocument:
    return read_report(DEMOS["slow"]())


def test_nothing_to_draw_is_no_chart() -> None:
    empty, pool = report(), NumberPool()
    assert waterfall_chart(empty.views.waterfall) is None
    assert heatmap_chart(empty.views.heatmap, pool) is None
    assert lanes_chart(empty, pool) is None
    assert strips_chart(empty.views.timeline, pool) is None
    assert steps_chart(empty.views, pool) is None
    assert curves_chart(empty.views.metrics, pool) is None


def test_the_waterfall_keeps_the_order_and_names_the_longest(slow: ReportDocument) -> None:
    chart = waterfall_chart(slow.views.waterfall)
    assert chart is not None
    phases = [row["phase"] for row in chart.data["rows"]]
    assert phases == [bar.phase for bar in slow.views.waterfall]
    assert "its longest phase is train with 15.7 s" in chart.summary


def test_the_heatmap_shows_own_work_first_then_wait_step_and_each_phase(
    slow: ReportDocument,
) -> None:
    chart = heatmap_chart(slow.views.heatmap, NumberPool())
    assert chart is not None
    labels = [option["label"] for option in chart.data["options"]]
    assert labels[:5] == ["own work", "wait", "step time", "dataload", "rollout"]
    assert "most on rank 5 with" in chart.summary


def test_a_wide_heatmap_is_binned_and_says_so() -> None:
    ranks, steps = list(range(100)), list(range(1_000))
    chart = heatmap_chart(
        report(
            heatmap={
                "ranks": ranks,
                "steps": steps,
                "step_seconds": [[1.0] * 1_000] * 100,
                "steps_total": 1_000,
            }
        ).views.heatmap,
        NumberPool(),
    )
    assert chart is not None
    assert chart.note == "Of every 10 steps the slowest is drawn."


def test_strips_are_grouped_and_scaled_to_readable_units(slow: ReportDocument) -> None:
    chart = strips_chart(slow.views.timeline, NumberPool())
    assert chart is not None
    groups = {group["key"]: group["strips"] for group in chart.data["groups"]}
    assert list(groups) == ["gpu", "host", "rank"]
    units = {strip["title"]: strip["unit"] for strip in groups["gpu"]}
    assert units["GPU memory used"] == "GiB"
    assert len(groups["gpu"][0]["lines"]) == 8


def test_chart_data_is_json(slow: ReportDocument) -> None:
    chart = strips_chart(slow.views.timeline, NumberPool())
    assert chart is not None
    json.dumps(chart.data, allow_nan=False)
