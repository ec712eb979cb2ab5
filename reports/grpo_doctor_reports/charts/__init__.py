"""The charts of a report: each is built once, for the page and for a notebook."""

from __future__ import annotations

from grpo_doctor_reports.charts.curves import curves_chart
from grpo_doctor_reports.charts.figure import Chart
from grpo_doctor_reports.charts.heatmap import heatmap_chart
from grpo_doctor_reports.charts.lanes import lanes_chart
from grpo_doctor_reports.charts.steps import steps_chart
from grpo_doctor_reports.charts.strips import strips_chart
from grpo_doctor_reports.charts.trajectories import trajectories_chart
from grpo_doctor_reports.charts.waterfall import waterfall_chart
from grpo_doctor_reports.digest import Bar, step_bar
from grpo_doctor_reports.schema.report import ReportDocument


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


def bars_of(report: ReportDocument) -> list[Bar]:
    """Return the phases of the mean step in their order."""
    return sorted(step_bar(report), key=lambda bar: bar.start_s)
