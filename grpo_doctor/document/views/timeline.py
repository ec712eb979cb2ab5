"""The run over time: exact where that fits, means of neighbouring steps elsewhere."""

from __future__ import annotations

from collections.abc import Sequence

from grpo_doctor.analysis import Analysis
from grpo_doctor.document.numbers import seconds
from grpo_doctor.document.views.buckets import rank_buckets
from grpo_doctor.document.views.exact import exact, exact_windows
from grpo_doctor.document.views.roles import role_tracks
from grpo_doctor.document.views.tracks import track_entries
from grpo_doctor_reports.schema.views import Timeline

_LONG = 4000  # stretches of ranks in phases


def timeline(analysis: Analysis, named_steps: Sequence[Sequence[int]] = ()) -> Timeline:
    """Every rank; nothing in it stands for something else."""
    last_ns = max((int(t.pieces.end_ns[-1]) for t in analysis.tracks if len(t.pieces)), default=0)
    is_long = sum(len(track.pieces) for track in analysis.tracks) > _LONG
    tracks, left_out = track_entries(analysis.trace)
    return Timeline(
        end_s=seconds(max(analysis.trace.run.duration_ns, last_ns)),
        tracks=[*role_tracks(analysis.trace), *tracks],
        tracks_left_out=left_out,
        thinned=is_long or left_out > 0,
        ranks=rank_buckets(analysis),
        exact=exact(analysis, exact_windows(analysis, named_steps)),
    )
