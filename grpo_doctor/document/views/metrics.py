"""Training metrics by step, and evaluations during training."""

from __future__ import annotations

import numpy as np

from grpo_doctor.analysis import Analysis
from grpo_doctor.analysis.learning import curve
from grpo_doctor.analysis.learning.curves import curve_of_key
from grpo_doctor.analysis.rows import CODES
from grpo_doctor.document.numbers import significant_column
from grpo_doctor.trace.model import Trace
from grpo_doctor_reports.schema.views import Evaluation, MetricsView

MAX_POINTS = 1000
MAX_SERIES = 256


def metrics_view(trace: Trace) -> MetricsView:
    """Return every metric that is known at any step; of many steps, evenly spread ones."""
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


# A metric, and whether more of it is better; the loss of GRPO says little, the reward all.
_METRICS = (("eval_reward", True), ("eval_loss", False))
# A step that only asks whether a checkpoint is due writes none.
_LEAST_S = 1e-3


def evaluation(analysis: Analysis) -> Evaluation | None:
    """Return the rewards of all evaluations, or their losses; None where none was recorded."""
    for metric, more_is_better in _METRICS:
        recorded = curve(analysis.trace, metric)
        if recorded is None or not len(recorded.finite):
            continue
        points = recorded.finite
        best = int(np.argmax(points.values if more_is_better else -points.values))
        spread = np.linspace(0, len(points) - 1, min(len(points), MAX_POINTS)).round()
        rows = np.union1d(spread.astype(np.intp), [best])
        best_step = int(points.steps[best])
        return Evaluation(
            metric=points.key,
            steps=points.steps[rows].tolist(),
            values=significant_column(points.values[rows], 6),
            best_step=best_step,
            best_saved=_saved(analysis, best_step),
        )
    return None


def _saved(analysis: Analysis, step: int) -> bool:
    """Return whether any rank wrote a checkpoint in this step."""
    rows = analysis.seconds[analysis.steps.numbers == step, :, CODES["checkpoint"]]
    return bool((np.nan_to_num(rows) > _LEAST_S).any())
