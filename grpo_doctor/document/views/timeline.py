"""The run over time: exact where that fits, means of neighbouring steps elsewhere."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from grpo_doctor.analysis import Analysis
from grpo_doctor.analysis.intervals import Intervals, overlaps
from grpo_doctor.analysis.tracks import PhaseTrack
from grpo_doctor.document.numbers import SECONDS_DIGITS, seconds
from grpo_doctor.document.views.buckets import rank_buckets
from grpo_doctor.document.views.exact import Window, exact, exact_windows
from grpo_doctor.document.views.roles import role_tracks
from grpo_doctor.document.views.tracks import track_entries
from grpo_doctor.phases import PHASES
from grpo_doctor_reports.schema.timeline import Band, Timeline

MAX_BANDS = 4000


def timeline(analysis: Analysis, named_steps: Sequence[Sequence[int]] = ()) -> Timeline:
    """Every rank; nothing in it stands for something else."""
    last_ns = max((int(t.pieces.end_ns[-1]) for t in analysis.tracks if len(t.pieces)), default=0)
    windows = exact_windows(analysis, named_steps)
    thinned = sum(len(track.pieces) for track in analysis.tracks) > MAX_BANDS
    tracks, left_out = track_entries(analysis.trace)
    return Timeline(
        end_s=seconds(max(analysis.trace.run.duration_ns, last_ns)),
        bands=_bands_within(analysis, windows) if thinned else _bands(analysis.tracks),
        tracks=[*role_tracks(analysis.trace), *tracks],
        tracks_left_out=left_out,
        thinned=thinned or left_out > 0,
        ranks=rank_buckets(analysis),
        exact=exact(analysis, windows),
    )


def _bands(tracks: Sequence[PhaseTrack]) -> list[Band]:
    return [
        Band(rank=track.rank, phase=PHASES[phase], start_s=start, end_s=end, open=open_)
        for track in tracks
        for phase, start, end, open_ in zip(
            track.phase.tolist(),
            np.round(track.pieces.start_ns / 1e9, SECONDS_DIGITS).tolist(),
            np.round(track.pieces.end_ns / 1e9, SECONDS_DIGITS).tolist(),
            track.open.tolist(),
            strict=True,
        )
    ]


def _bands_within(analysis: Analysis, windows: list[Window]) -> list[Band]:
    """What never ended, and of all ranks the pieces in as many windows as fit."""
    chosen = [track.open for track in analysis.tracks]
    for window in windows:
        inside = Intervals(np.array([window.start_ns]), np.array([window.end_ns]))
        wider = []
        for rows, track in zip(chosen, analysis.tracks, strict=True):
            more = rows.copy()
            more[overlaps(track.pieces, inside).left] = True
            wider.append(more)
        if sum(int(rows.sum()) for rows in wider) <= MAX_BANDS:
            chosen = wider
    return _bands(
        [
            PhaseTrack(track.rank, track.pieces.select(rows), track.phase[rows], track.open[rows])
            for track, rows in zip(analysis.tracks, chosen, strict=True)
        ]
    )
