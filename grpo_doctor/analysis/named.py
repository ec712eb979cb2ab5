"""Time in spans of one name, such as `sync/gather`, by step and rank."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from grpo_doctor.analysis.intervals import overlaps, union
from grpo_doctor.analysis.steps import NS_PER_S
from grpo_doctor.trace.model import Kind

if TYPE_CHECKING:
    from grpo_doctor.analysis import Analysis


def named_seconds(analysis: Analysis, name: str) -> NDArray[np.float64]:
    """Seconds that the main thread spent in spans of this name, shape (used steps, stepping ranks).

    Spans that overlap count once. All zero where the recording has no such span.
    """
    steps, trace = analysis.steps, analysis.trace
    result = np.zeros((len(steps.numbers), len(analysis.ranks)))
    code = trace.names.index(name) if name in trace.names else -1
    for column, main in enumerate(analysis.mains):
        spans = trace.spans
        rows = main.rows[(spans.name[main.rows] == code) & (spans.kind[main.rows] == Kind.SPAN)]
        windows, step = steps.windows(column, used=True)
        if not len(rows) or not len(windows):
            continue
        found = overlaps(union(spans.start_ns[rows], spans.end_ns[rows]), windows)
        np.add.at(result[:, column], step[found.right], found.length_ns / NS_PER_S)
    chosen: NDArray[np.float64] = result[np.ix_(steps.used, np.flatnonzero(steps.stepping))]
    return chosen
