"""Read the run over time: buckets of steps, exact windows, samples."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from grpo_doctor_reports.palette import order_of
from grpo_doctor_reports.schema import timeline as parts
from grpo_doctor_reports.timeline_model import Bucket, RankBuckets, StepBuckets, Timeline, Worst
from grpo_doctor_reports.views import fitted, matrix

_STEADY = "steady"


def read_timeline(part: parts.Timeline) -> Timeline:
    """Return what is drawn over time, in seconds since the start of the run."""
    lengths = [min(len(track.t_s), len(track.v)) for track in part.tracks]
    tracks = [
        replace(track, t_s=track.t_s[:length], v=track.v[:length])
        for track, length in zip(part.tracks, lengths, strict=True)
    ]
    exact = _read_exact(part.exact)
    ends = [end for lane in exact.lanes for end in lane.end_s]
    sampled = (t for track in tracks for t in track.t_s if t is not None)
    return Timeline(
        end_s=max(0.0, part.end_s, max(ends, default=0.0), max(sampled, default=0.0)),
        ranks=_read_rank_buckets(part.ranks),
        exact=exact,
        tracks=tracks,
        tracks_left_out=max(0, part.tracks_left_out),
    )


def read_step_buckets(part: parts.StepBuckets) -> StepBuckets:
    """Return the buckets, each list as long as there are buckets."""
    buckets = _read_buckets(part)
    width = len(buckets)
    columns = (
        fitted(part.worst_seconds, width),
        fitted(part.worst_step, width, missing=0),
        fitted(part.worst_rank, width),
    )
    return StepBuckets(
        buckets=buckets,
        seconds=fitted(part.seconds, width),
        worst=[Worst(seconds, step, rank) for seconds, step, rank in zip(*columns, strict=True)],
        phases_s=_in_order({n: fitted(row, width) for n, row in part.phase_seconds.items()}),
        waits_s={name: fitted(row, width) for name, row in part.wait_seconds.items()},
        median_s=max(0.0, part.median_seconds or 0.0),
        median_phases_s=part.median_phase_seconds,
    )


def _read_rank_buckets(part: parts.RankBuckets) -> RankBuckets:
    buckets = _read_buckets(part)
    height, width = len(part.ranks), len(buckets)
    return RankBuckets(
        buckets=buckets,
        ranks=part.ranks if buckets else [],
        phases_s=_in_order(
            {name: matrix(rows, height, width) for name, rows in part.phase_seconds.items()}
        ),
        waits_s={name: matrix(rows, height, width) for name, rows in part.wait_seconds.items()},
    )


def _read_buckets(part: parts.Buckets) -> list[Bucket]:
    columns = (part.first, part.last, part.steps, part.used, part.kind, part.start_s, part.end_s)
    return [
        Bucket(first, last, max(1, steps), used, kind or _STEADY, start or 0.0, end or start or 0.0)
        for first, last, steps, used, kind, start, end in zip(*columns, strict=False)
    ]


def _read_exact(part: parts.Exact) -> parts.Exact:
    lanes = []
    for lane in part.lanes:
        columns = (lane.name, lane.depth, lane.start_s, lane.end_s, lane.meeting)
        length = min(len(column) for column in columns)
        names = [name if 0 <= name < len(part.names) else 0 for name in lane.name[:length]]
        lanes.append(
            replace(
                lane,
                name=names if part.names else [],
                depth=[max(0, depth) for depth in lane.depth[:length]],
                start_s=lane.start_s[:length],
                end_s=lane.end_s[:length],
                meeting=lane.meeting[:length],
                open=[row for row in lane.open if 0 <= row < length],
                wait_s=lane.wait_s[: len(lane.wait_s) // 2 * 2],
            )
        )
    return replace(
        part,
        windows=[window for window in part.windows if window.end_s > window.start_s],
        lanes=[lane for lane in lanes if lane.name or not lane.start_s],
        spans_left_out=max(0, part.spans_left_out),
        longest_left_out_s=max(0.0, part.longest_left_out_s),
    )


def _in_order(by_phase: dict[str, Any]) -> dict[str, Any]:
    return {name: by_phase[name] for name in sorted(by_phase, key=order_of)}
