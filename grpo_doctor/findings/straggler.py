"""In which phases a rank works longer than the others."""

from __future__ import annotations

import numpy as np

from grpo_doctor.analysis.rows import UNATTRIBUTED_CODE
from grpo_doctor.analysis.stragglers import work_above_others
from grpo_doctor.findings.view import RunView
from grpo_doctor.phases import PHASES

# Phases that make up less of the rank's extra work are not named.
MIN_PHASE_PART = 0.25


def slow_phases(view: RunView, rank: int) -> dict[str, float]:
    """Return the phases in which a rank works longer than the median of the others, by how much."""
    excess = work_above_others(view.analysis.used_own_work, view.model.ranks.index(rank))
    extra = np.maximum(excess[:UNATTRIBUTED_CODE], 0)
    order = [code for code in np.argsort(-extra) if extra[code] > MIN_PHASE_PART * extra.sum()]
    return {PHASES[code]: float(extra[code]) for code in order}
