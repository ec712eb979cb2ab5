from __future__ import annotations

import pytest

from grpo_doctor_reports.charts.curves import curves_chart
from grpo_doctor_reports.charts.heatmap import heatmap_chart
from grpo_doctor_reports.charts.lanes import lanes_chart
from grpo_doctor_reports.charts.steps import steps_chart
from grpo_doctor_reports.charts.strips import strips_chart
from grpo_doctor_reports.charts.waterfall import waterfall_chart
from grpo_doctor_reports.schema.report import ReportDocument, read_report
from tests.demo_reports import DEMOS
from tests.unit.reports.charts.built import report


@pytest.fixture(scope="module")
def slow() -> ReportDocument:
    return read_report(DEMOS["slow"]())


def test_nothing_to_draw_is_no_chart() -> None:
    empty = report()
    assert waterfall_chart(empty.views.waterfall) is None
    assert heatmap_chart(empty.views.heatmap) is None
    assert lanes_chart(empty) is None
    assert strips_chart(empty.views.timeline) is None
    assert steps_chart(empty.views) is None
    assert curves_chart(empty.views.metrics) is None


def test_the_waterfall_keeps_the_order_and_names_the_longest(slow: ReportDocument) -> None:
    chart = waterfall_chart(slow.views.waterfall)
    assert chart is not None
    phases = chart.figures["waterfall"]["layout"]["yaxis"]["ticktext"]
    assert phases == [f"{bar.phase} " for bar in slow.views.waterfall]
    assert "Its longest phase is train: 15.7 s" in chart.summary


def test_the_heatmap_shows_own_work_first_then_wait_step_and_each_phase(
    slow: ReportDocument,
) -> None:
    chart = heatmap_chart(slow.views.heatmap)
    assert chart is not None
    assert chart.facts["labels"][:5] == ["own work", "wait", "step time", "dataload", "rollout"]
    assert "rank 5 has the most" in chart.summary


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
        ).views.heatmap
    )
    assert chart is not None
    assert chart.note == "Shows the slowest of every 10 steps."


def test_strips_are_grouped_and_scaled_to_readable_units(slow: ReportDocument) -> None:
    chart = strips_chart(slow.views.timeline)
    assert chart is not None
    assert list(chart.figures) == ["GPUs", "Hosts", "Processes"]
    gpus = chart.figures["GPUs"]
    assert "GPU memory used, GiB" in [title["text"] for title in gpus["layout"]["annotations"]]
    lines = [t for t in gpus["data"] if t.get("yaxis") == "y2" and t.get("fill") != "toself"]
    assert len(lines) == 8
