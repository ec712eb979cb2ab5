"""Every step of the run with its kind, for stepping through them."""

from __future__ import annotations

import numpy as np

from grpo_doctor.analysis import Analysis
from grpo_doctor.analysis.regimes import KINDS
from grpo_doctor.document.numbers import number, seconds
from grpo_doctor.document.views.buckets import slowest_columns
from grpo_doctor.document.views.heatmap import MAX_STEPS
from grpo_doctor.document.views.spread import known_mean, slowest_of_each
from grpo_doctor_reports.schema.views import StepEntry


def step_entries(analysis: Analysis) -> list[StepEntry]:
    """All steps; of many, the slowest of each bucket."""
    steps = analysis.steps
    columns = np.flatnonzero(steps.stepping)
    if not (steps.start_ns >= 0).any():
        return []
    start_ns, end_ns = steps.bounds_ns
    lengths, slowest = known_mean(steps.seconds[:, columns], axis=1), slowest_columns(analysis)
    rows = slowest_of_each(lengths, MAX_STEPS)
    return [
        StepEntry(
            number=int(steps.numbers[row]),
            start_s=seconds(start_ns[row]),
            end_s=seconds(end_ns[row]),
            seconds=number(lengths[row]),
            kind=KINDS[analysis.regimes.kind[row]],
            slowest_rank=analysis.ranks[int(slowest[row])] if slowest[row] >= 0 else None,
        )
        for row in rows[np.argsort(start_ns[rows], kind="stable")]
    ]
