"""Training metrics by step."""

from __future__ import annotations

import numpy as np

from grpo_doctor.analysis.learning.curves import curve_of_key
from grpo_doctor.document.numbers import significant_column
from grpo_doctor.trace.model import Trace
from grpo_doctor_reports.schema.views import MetricsView

MAX_POINTS = 1000
MAX_SERIES = 256


def metrics_view(trace: Trace) -> MetricsView:
    """Every metric that is known at any step; of many steps, evenly spread ones."""
    steps, every = trace.metrics.steps, (curve_of_key(trace, key) for key in trace.metrics.values)
    lost = {c.key: int(c.bad.sum()) for c in every if c is not None and c.bad.any()}
    rows = np.unique(np.linspace(0, len(steps) - 1, MAX_POINTS).round().astype(np.intp))
    if len(steps) <= MAX_POINTS:
        rows = np.arange(len(steps))
    series = {n: v for n, v in trace.metrics.values.items() if np.isfinite(v).any()}
    chosen = list(series.items())[:MAX_SERIES]
    return MetricsView(
        steps=steps[rows].tolist(),
        series={name: significant_column(values[rows], 6) for name, values in chosen},
        steps_without_number=dict(list(lost.items())[:MAX_SERIES]),
    )
