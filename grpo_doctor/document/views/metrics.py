"""Training metrics by step."""

from __future__ import annotations

import numpy as np

from grpo_doctor.document.numbers import significant_column
from grpo_doctor.trace.model import Trace
from grpo_doctor_reports.schema.views import MetricsView

MAX_POINTS = 1000
MAX_SERIES = 64


def metrics_view(trace: Trace) -> MetricsView:
    """Every metric that is known at any step; of many steps, evenly spread ones."""
    steps = trace.metrics.steps
    rows = np.unique(np.linspace(0, len(steps) - 1, MAX_POINTS).round().astype(np.intp))
    if len(steps) <= MAX_POINTS:
        rows = np.arange(len(steps))
    series = {n: v for n, v in trace.metrics.values.items() if np.isfinite(v).any()}
    chosen = list(series.items())[:MAX_SERIES]
    return MetricsView(
        steps=steps[rows].tolist(),
        series={name: significant_column(values[rows], 6) for name, values in chosen},
    )
