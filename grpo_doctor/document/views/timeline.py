"""The run over time: each rank's phases as bands, thinned where there are too many."""

from __future__ import annotations

import numpy as np

from grpo_doctor.analysis import Analysis
from grpo_doctor.analysis.intervals import Intervals, overlaps, subtract, union
from grpo_doctor.analysis.rows import COLUMNS, UNATTRIBUTED_CODE
from grpo_doctor.analysis.tracks import PhaseTrack
from grpo_doctor.document.numbers import SECONDS_DIGITS, seconds
from grpo_doctor.document.views.roles import role_tracks
from grpo_doctor.document.views.tracks import track_entries
from grpo_doctor.phases import PHASES
from grpo_doctor_reports.schema.views import Band, Timeline

MAX_BANDS = 4000
# Fewer bands than this do not show what a rank did.
_MIN_BANDS_PER_RANK = 500


def timeline(analysis: Analysis) -> Timeline:
    """Bands of all ranks while they fit; else of the first, the slowest and a few more."""
    trace = analysis.trace
    last_ns = max((int(t.pieces.end_ns[-1]) for t in analysis.tracks if len(t.pieces)), default=0)
    bands: list[Band] = []
    thinned = sum(len(track.pieces) for track in analysis.tracks) > MAX_BANDS
    shown = _chosen(analysis) if thinned else list(range(len(analysis.tracks)))
    for place, column in enumerate(shown):
        budget = (MAX_BANDS - len(bands)) // (len(shown) - place)
        track = analysis.tracks[column]
        bands += _bands(track if len(track.pieces) <= budget else _thin(analysis, column, budget))
    tracks, dropped = track_entries(trace)
    return Timeline(
        end_s=seconds(max(trace.run.duration_ns, last_ns)),
        bands=bands,
        tracks=[*role_tracks(trace), *tracks],
        thinned=thinned or dropped,
    )


def _bands(track: PhaseTrack) -> list[Band]:
    start = np.round(track.pieces.start_ns / 1e9, SECONDS_DIGITS).tolist()
    end = np.round(track.pieces.end_ns / 1e9, SECONDS_DIGITS).tolist()
    return [
        Band(rank=track.rank, phase=PHASES[phase], start_s=s, end_s=e, open=open_)
        for phase, s, e, open_ in zip(
            track.phase.tolist(), start, end, track.open.tolist(), strict=True
        )
    ]


def _chosen(analysis: Analysis) -> list[int]:
    """Columns to show: the first rank, the one that works longest, those that never ended, more."""
    columns = list(range(len(analysis.tracks)))
    work = analysis.used_work.sum(axis=(0, 2))
    stepping = np.flatnonzero(analysis.steps.stepping)
    slowest = [int(stepping[work.argmax()])] if work.size and len(analysis.steps.used) else []
    never_ended = [c for c in columns if analysis.tracks[c].open.any()]
    wanted = list(dict.fromkeys([0, *slowest, *never_ended, *columns]))
    return sorted(wanted[: MAX_BANDS // _MIN_BANDS_PER_RANK])


def _thin(analysis: Analysis, column: int, budget: int) -> PhaseTrack:
    """The first, the median and the last used step and open spans as they are; else buckets, each
    with the phase that takes most of it."""
    track = analysis.tracks[column]
    exact = _exact_windows(analysis, column, budget // 2)
    inside = overlaps(track.pieces, exact)
    coarse = _coarse(track, budget - len(inside.left) - 2 * len(exact))
    outside = subtract(coarse.pieces, exact)
    start = np.concatenate([inside.start_ns, outside.start_ns])
    order = np.argsort(start, kind="stable")
    end = np.concatenate([inside.end_ns, outside.end_ns])[order]
    phase = np.concatenate([track.phase[inside.left], coarse.phase[outside.left]])[order]
    open_ = np.concatenate([track.open[inside.left], coarse.open[outside.left]])[order]
    return PhaseTrack(track.rank, Intervals(start[order], end), phase, open_)


def _exact_windows(analysis: Analysis, column: int, budget: int) -> Intervals:
    track = analysis.tracks[column]
    windows, _ = analysis.steps.windows(column, used=True)
    chosen = track.pieces.select(track.open)
    if len(windows):
        length = windows.end_ns - windows.start_ns
        median = int(np.argsort(length, kind="stable")[len(length) // 2])
        for row in dict.fromkeys([median, len(windows) - 1, 0]):
            wider = union(
                np.r_[chosen.start_ns, windows.start_ns[row]],
                np.r_[chosen.end_ns, windows.end_ns[row]],
            )
            if len(overlaps(track.pieces, wider).left) <= budget:
                chosen = wider
    return chosen


def _coarse(track: PhaseTrack, count: int) -> PhaseTrack:
    """At most `count` bands of equal buckets of time; buckets mostly without a phase are none."""
    first, last = int(track.pieces.start_ns[0]), int(track.pieces.end_ns[-1])
    edges = np.unique(np.linspace(first, last, max(2, count + 1)).astype(np.int64))
    buckets = Intervals(edges[:-1], edges[1:])
    found = overlaps(track.pieces, buckets)
    cell = found.right * COLUMNS + track.phase[found.left]
    size = len(buckets) * COLUMNS
    table = np.bincount(cell, weights=found.length_ns, minlength=size).reshape(-1, COLUMNS)
    table[:, UNATTRIBUTED_CODE] = np.diff(edges) - table.sum(axis=1)
    phase = table.argmax(axis=1)
    begins = np.flatnonzero(np.r_[True, phase[1:] != phase[:-1]])
    ends = np.r_[begins[1:], len(phase)] - 1
    named = phase[begins] != UNATTRIBUTED_CODE
    begins, ends = begins[named], ends[named]
    pieces = Intervals(buckets.start_ns[begins], buckets.end_ns[ends])
    return PhaseTrack(track.rank, pieces, phase[begins], np.zeros(len(begins), dtype=np.bool_))
