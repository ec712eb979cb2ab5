"""Recorded counters, spans of one name, and the gaps between phases, by step and rank."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from grpo_doctor.analysis.rows import CODES, NO_PHASE
from grpo_doctor.analysis.sampled import series_named
from grpo_doctor.analysis.steps import NS_PER_S
from grpo_doctor.phases import PHASES
from grpo_doctor.trace.intervals import gaps, holding, intersect, overlaps, union
from grpo_doctor.trace.model import Kind

if TYPE_CHECKING:
    from grpo_doctor.analysis import Analysis


def counted(analysis: Analysis, name: str) -> NDArray[np.float64]:
    """Return the sum of a counter's samples, shape (used steps, stepping ranks).

    NaN where a rank recorded none in a step.
    """
    steps = analysis.steps
    result = np.full((len(steps.numbers), len(analysis.ranks)), np.nan)
    columns = {rank: column for column, rank in enumerate(analysis.ranks)}
    for series in series_named(analysis.trace, name):
        column = columns.get(series.rank) if series.rank is not None else None
        if series.scope != "counter" or column is None:
            continue
        windows, step = steps.windows(column, used=True)
        window = holding(windows, series.t_ns)
        inside = (window >= 0) & np.isfinite(series.values)
        rows = step[window[inside]]
        result[rows, column] = np.where(np.isnan(result[rows, column]), 0, result[rows, column])
        np.add.at(result[:, column], rows, series.values[inside])
    return steps.used_cells(result)


def counted_mean(analysis: Analysis, name: str) -> float | None:
    """A counter's sum per step, the mean over the steps and ranks that recorded it; or None."""
    table = counted(analysis, name)
    return float(np.nanmean(table)) if np.isfinite(table).any() else None


def named_seconds(analysis: Analysis, name: str, waited_in: str = "") -> NDArray[np.float64]:
    """Seconds that the main thread spent in spans of this name, shape (used steps, stepping ranks);
    with `waited_in`, seconds that any thread did while the main one was in that phase.

    Spans that overlap count once. All zero where the recording has no such span.
    """
    steps, trace = analysis.steps, analysis.trace
    result = np.zeros((len(steps.numbers), len(analysis.ranks)))
    if name not in trace.names:
        return steps.used_cells(result)
    spans = trace.spans
    named = (spans.name == trace.names.index(name)) & (spans.kind == Kind.SPAN)
    for column, main in enumerate(analysis.mains):
        rows = main.rows[named[main.rows]]
        if waited_in:
            own = [p.index for p in trace.processes if p.rank == main.rank and p.carries_steps]
            rows = np.flatnonzero(named & np.isin(spans.process, own))
        windows, step = steps.windows(column, used=True)
        if not len(rows) or not len(windows):
            continue
        covered = union(spans.start_ns[rows], spans.end_ns[rows])
        if waited_in:
            covered = intersect(covered, analysis.tracks[column].of(CODES[waited_in]))
        overlap = overlaps(covered, windows)
        lengths_s = overlap.length_ns / NS_PER_S
        result[:, column] = np.bincount(step[overlap.right], lengths_s, len(result))
    return steps.used_cells(result)


BEGIN, END = "the step's begin", "its end"


def gap_seconds(analysis: Analysis) -> dict[tuple[str, str], float]:
    """Unattributed seconds per step by (phase before, phase after), largest first.

    Means over used steps and stepping ranks. The step's own ends replace a missing phase.
    """
    names = (*PHASES, "")
    total: dict[tuple[str, str], float] = {}
    count = len(analysis.steps.used) * int(analysis.steps.stepping.sum())
    for column, track in enumerate(analysis.tracks):
        windows, _ = analysis.steps.windows(column, used=True)
        overlap = overlaps(windows, gaps(track.pieces))
        phase = np.r_[NO_PHASE, track.phase, NO_PHASE]
        at = np.searchsorted(track.pieces.start_ns, overlap.start_ns, side="right")
        inside_before = overlap.start_ns > windows.start_ns[overlap.left]
        inside_after = overlap.end_ns < windows.end_ns[overlap.left]
        before = np.where(inside_before, phase[at], NO_PHASE)
        after = np.where(inside_after, phase[at + 1], NO_PHASE)
        pairs, group = np.unique(np.stack([before, after]), axis=1, return_inverse=True)
        sums = np.bincount(np.ravel(group), weights=overlap.length_ns, minlength=pairs.shape[1])
        for (left, right), nanoseconds in zip(pairs.T, sums, strict=True):
            key = (names[left] or BEGIN, names[right] or END)
            total[key] = total.get(key, 0.0) + nanoseconds / NS_PER_S / count
    return dict(sorted(total.items(), key=lambda item: -item[1]))


def unattributed_span_seconds(analysis: Analysis) -> dict[str, float]:
    """Unattributed seconds per step within spans that belong to no phase, by name, largest first.

    Such are the user's own spans and a trainer's callbacks. Means over used steps and stepping
    ranks; of spans within spans each counts.
    """
    trace, spans = analysis.trace, analysis.trace.spans
    count = len(analysis.steps.used) * int(analysis.steps.stepping.sum())
    total: dict[str, float] = {}
    for column, (main, track) in enumerate(zip(analysis.mains, analysis.tracks, strict=True)):
        windows, _ = analysis.steps.windows(column, used=True)
        open_time = intersect(windows, gaps(track.pieces))
        unnamed = (main.phase == NO_PHASE) & (spans.kind[main.rows] == Kind.SPAN)
        rows = main.rows[unnamed]
        for name in np.unique(spans.name[rows]).tolist():
            chosen = rows[spans.name[rows] == name]
            inside = intersect(union(spans.start_ns[chosen], spans.end_ns[chosen]), open_time)
            seconds = float((inside.end_ns - inside.start_ns).sum()) / NS_PER_S / count
            if seconds > 0:
                key = trace.names[name]
                total[key] = total.get(key, 0.0) + seconds
    return dict(sorted(total.items(), key=lambda item: -item[1]))
