"""The mean step as phases that follow each other, in the order in which they start."""

from __future__ import annotations

import msgspec
import numpy as np
from msgspec.structs import replace

from grpo_doctor.analysis import Analysis
from grpo_doctor.analysis.intervals import overlaps
from grpo_doctor.analysis.rows import COLUMNS, UNATTRIBUTED_CODE
from grpo_doctor.document.numbers import SECONDS_DIGITS
from grpo_doctor.document.summary import phase_entry
from grpo_doctor.phases import PHASES, UNATTRIBUTED
from grpo_doctor_reports.schema.views import WaterfallEntry


def waterfall(analysis: Analysis) -> list[WaterfallEntry]:
    """Ends at the mean step time; what no phase covers comes last."""
    if not analysis.step_s:
        return []
    entries: list[WaterfallEntry] = []
    now = 0.0
    for code in [*_starting_order(analysis), UNATTRIBUTED_CODE]:
        entry = phase_entry(analysis, code)
        if entry.seconds <= 0:
            continue
        entries.append(
            replace(
                msgspec.convert(entry, WaterfallEntry, from_attributes=True),
                phase=(*PHASES, UNATTRIBUTED)[code],
                start_s=round(now, SECONDS_DIGITS),
            )
        )
        now += entry.seconds
    return entries


def _starting_order(analysis: Analysis) -> list[int]:
    """Phase codes by their mean first start after the begin of a step."""
    total, count = np.zeros(COLUMNS), np.zeros(COLUMNS)
    for column, track in enumerate(analysis.tracks):
        windows, _ = analysis.steps.windows(column, used=True)
        shared = overlaps(track.pieces, windows)
        cell = shared.right * COLUMNS + track.phase[shared.left]
        _, first = np.unique(cell, return_index=True)
        phase = track.phase[shared.left[first]]
        np.add.at(total, phase, shared.start_ns[first] - windows.start_ns[shared.right[first]])
        np.add.at(count, phase, 1)
    present = np.flatnonzero(count)
    order: list[int] = present[np.argsort(total[present] / count[present], kind="stable")].tolist()
    return order
