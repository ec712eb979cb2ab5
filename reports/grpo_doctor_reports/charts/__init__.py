"""The charts of a report: each is built once, for the page and for a notebook."""

from __future__ import annotations

from msgspec.structs import replace

from grpo_doctor_reports import time_words
from grpo_doctor_reports.charts.curves import curves_chart
from grpo_doctor_reports.charts.figure import Chart
from grpo_doctor_reports.charts.heatmap import heatmap_chart
from grpo_doctor_reports.charts.lanes import lanes_chart
from grpo_doctor_reports.charts.steps import steps_chart
from grpo_doctor_reports.charts.strips import strips_chart
from grpo_doctor_reports.charts.trajectories import trajectories_chart
from grpo_doctor_reports.charts.waterfall import waterfall_chart
from grpo_doctor_reports.schema.report import ReportDocument
from grpo_doctor_reports.schema.views import WaterfallEntry


def charts_of(report: ReportDocument) -> dict[str, Chart]:
    """Return the charts that the document has data for, by name."""
    views = report.views
    charts = {
        "waterfall": waterfall_chart(bars_of(report)),
        "steps": steps_chart(views),
        "heatmap": heatmap_chart(views.heatmap),
        "lanes": lanes_chart(report),
        "strips": strips_chart(views.timeline),
        "curves": curves_chart(views.metrics, views.evaluation),
        "trajectories": trajectories_chart(report.trajectories) if report.trajectories else None,
    }
    return {name: chart for name, chart in charts.items() if chart is not None}


def bars_of(report: ReportDocument) -> list[WaterfallEntry]:
    """Return the phases of the mean step, whose kinds of time are no longer than the phase."""
    return [
        replace(time_words.with_bounded_kinds(bar), start_s=max(0.0, bar.start_s))
        for bar in report.views.waterfall
    ]
