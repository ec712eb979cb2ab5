"""Read the run over time: buckets of steps, exact windows, samples."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from grpo_doctor_reports.palette import order_of
from grpo_doctor_reports.schema import timeline as parts
from grpo_doctor_reports.views import fitted, matrix

_STEADY = "steady"


def read_timeline(part: parts.Timeline) -> parts.Timeline:
    """Return what is drawn over time, in seconds since the start of the run."""
    lengths = [min(len(track.t_s), len(track.v)) for track in part.tracks]
    tracks = [
        replace(track, t_s=track.t_s[:length], v=track.v[:length])
        for track, length in zip(part.tracks, lengths, strict=True)
    ]
    exact = _read_exact(part.exact)
    ends = [end for lane in exact.lanes for end in lane.end_s]
    sampled = (t for track in tracks for t in track.t_s if t is not None)
    return replace(
        part,
        end_s=max(0.0, part.end_s, max(ends, default=0.0), max(sampled, default=0.0)),
        ranks=_read_rank_buckets(part.ranks),
        exact=exact,
        tracks=tracks,
        tracks_left_out=max(0, part.tracks_left_out),
    )


def read_step_buckets(part: parts.StepBuckets) -> parts.StepBuckets:
    """Return the buckets, each list as long as there are buckets."""
    shared = _shared(part)
    width = len(shared["first"])
    phases = {name: fitted(row, width) for name, row in part.phase_seconds.items()}
    return replace(
        part,
        **shared,
        seconds=fitted(part.seconds, width),
        worst_seconds=fitted(part.worst_seconds, width),
        worst_step=fitted(part.worst_step, width, missing=0),
        worst_rank=fitted(part.worst_rank, width),
        phase_seconds=_in_order(phases),
        wait_seconds={name: fitted(row, width) for name, row in part.wait_seconds.items()},
        median_seconds=max(0.0, part.median_seconds or 0.0),
    )


def _read_rank_buckets(part: parts.RankBuckets) -> parts.RankBuckets:
    shared = _shared(part)
    height, width = len(part.ranks), len(shared["first"])
    phases = {name: matrix(rows, height, width) for name, rows in part.phase_seconds.items()}
    return replace(
        part,
        **shared,
        ranks=part.ranks if width else [],
        phase_seconds=_in_order(phases),
        wait_seconds={
            name: matrix(rows, height, width) for name, rows in part.wait_seconds.items()
        },
    )


def _shared(part: parts.Buckets) -> dict[str, Any]:
    """Where the buckets are; what one list lacks is no bucket."""
    whens, whats = (part.start_s, part.end_s), (part.used, part.kind)
    width = min(len(column) for column in (part.first, part.last, part.steps, *whats, *whens))
    starts = [start or 0.0 for start in part.start_s[:width]]
    return {
        "first": part.first[:width],
        "last": part.last[:width],
        "steps": [max(1, steps) for steps in part.steps[:width]],
        "used": part.used[:width],
        "kind": [kind or _STEADY for kind in part.kind[:width]],
        "start_s": starts,
        "end_s": [end or start for end, start in zip(part.end_s, starts, strict=False)],
    }


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
