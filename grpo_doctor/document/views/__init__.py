"""What the charts of a report draw, kept small enough for one HTML file."""

from __future__ import annotations

from collections.abc import Sequence

from grpo_doctor.analysis import Analysis
from grpo_doctor.document.views.critical import collective_entries, median_path, worst_path
from grpo_doctor.document.views.metrics import evaluation, metrics_view
from grpo_doctor.document.views.steps import heatmap, step_buckets, step_entries
from grpo_doctor.document.views.timeline import timeline_view
from grpo_doctor_reports.schema.views import Views


def views(analysis: Analysis, named_steps: Sequence[Sequence[int]] = ()) -> Views:
    """All views of a run; `named_steps` are those of each finding, which are drawn exactly."""
    return Views(
        heatmap=heatmap(analysis),
        timeline=timeline_view(analysis, named_steps),
        metrics=metrics_view(analysis.trace),
        evaluation=evaluation(analysis),
        steps=step_entries(analysis),
        step_buckets=step_buckets(analysis),
        critical_path=median_path(analysis),
        critical_path_worst=worst_path(analysis),
        collectives=collective_entries(analysis),
    )
