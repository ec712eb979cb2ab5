"""How often and in which order things happen in a step, as the main threads recorded them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from grpo_doctor.analysis.intervals import Intervals, covers, intersect
from grpo_doctor.analysis.rows import CODES
from grpo_doctor.analysis.steps import NS_PER_S
from grpo_doctor.findings.view import RunView
from grpo_doctor.trace.model import Kind


def stepping_columns(view: RunView) -> list[int]:
    """The columns of the ranks that have steps."""
    return [int(column) for column in np.flatnonzero(view.analysis.steps.stepping)]


def phase_windows(view: RunView, column: int, phase: str) -> Intervals:
    """One rank's pieces of a phase within the used steps."""
    steps, track = view.analysis.steps, view.analysis.tracks[column]
    windows, _ = steps.windows(column, used=True)
    return intersect(windows, track.of(CODES[phase]))


def times_per_step(view: RunView, name: str) -> float:
    """How many spans of this name a rank begins per step, the mean over steps and ranks."""
    steps, ranks = view.analysis.used_work.shape[:2]
    return float(len(span_lengths(view, name)) / max(1, steps * ranks))


def collectives_per_step(view: RunView, phase: str) -> float:
    """How many collectives a rank enters within a phase per step, the mean over steps and ranks."""
    spans, count = view.trace.spans, 0
    for column in stepping_columns(view):
        rows = view.analysis.mains[column].rows
        start = spans.start_ns[rows[spans.kind[rows] == Kind.COLLECTIVE]]
        count += int(covers(phase_windows(view, column, phase), start).sum())
    steps, ranks = view.analysis.used_work.shape[:2]
    return float(count / max(1, steps * ranks))


def seconds_just_before(view: RunView, phase: str, following: str) -> float:
    """Seconds per step in pieces of a phase that a piece of another one follows next, the mean."""
    return _neighbours(view, phase, following, after=True)


def seconds_just_after(view: RunView, phase: str, preceding: str) -> float:
    """Seconds per step in pieces of a phase that come next after one of another, the mean."""
    return _neighbours(view, phase, preceding, after=False)


def _neighbours(view: RunView, phase: str, other: str, *, after: bool) -> float:
    found = []
    for column in stepping_columns(view):
        track = view.analysis.tracks[column]
        here, there = track.phase == CODES[phase], track.phase == CODES[other]
        windows, _ = view.analysis.steps.windows(column, used=True)
        step = np.searchsorted(windows.start_ns, track.pieces.start_ns, side="right")
        same = step[1:] == step[:-1]  # what another step begins with is no neighbour
        beside = np.r_[there[1:] & same, False] if after else np.r_[False, there[:-1] & same]
        found.append(intersect(windows, track.pieces.select(here & beside)).total_ns)
    return _mean_s(view, found)


def _mean_s(view: RunView, per_rank_ns: list[int]) -> float:
    steps = len(view.analysis.steps.used)
    if not steps or not per_rank_ns:
        return 0.0
    return float(np.mean(per_rank_ns)) / NS_PER_S / steps


def span_lengths(view: RunView, name: str) -> NDArray[np.float64]:
    """Seconds of each span of this name that begins in a used step, of all ranks, shape (n,)."""
    trace, found = view.trace, [np.empty(0)]
    code = trace.names.index(name) if name in trace.names else -1
    for column in stepping_columns(view):
        spans, rows = trace.spans, view.analysis.mains[column].rows
        rows = rows[(spans.name[rows] == code) & (spans.kind[rows] == Kind.SPAN)]
        windows, _ = view.analysis.steps.windows(column, used=True)
        rows = rows[covers(windows, spans.start_ns[rows])]
        found.append((spans.end_ns[rows] - spans.start_ns[rows]) / NS_PER_S)
    return np.concatenate(found)
