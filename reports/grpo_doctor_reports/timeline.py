"""Read the run over time: buckets of steps, exact windows, samples."""

from __future__ import annotations

from collections import defaultdict
from statistics import median
from typing import Any

from msgspec.structs import replace

from grpo_doctor_reports.palette import order_of
from grpo_doctor_reports.schema import timeline as parts
from grpo_doctor_reports.schema.part import Numbers
from grpo_doctor_reports.schema.views import Heatmap
from grpo_doctor_reports.thinning import known_mean
from grpo_doctor_reports.time_model import StepTime
from grpo_doctor_reports.timeline_model import Bucket, RankBuckets, StepBuckets, Timeline, Worst
from grpo_doctor_reports.views import fitted, matrix

_STEADY = "steady"
_UNUSED = ("warmup", "open")  # steps that no mean is over
_MOST_BANDS = 15_000  # of a document without exact windows; the page stays below 2.5 MB


def read_timeline(part: parts.Timeline) -> Timeline:
    """Return what is drawn over time, in seconds since the start of the run."""
    lengths = [min(len(track.t_s), len(track.v)) for track in part.tracks]
    tracks = [
        replace(track, t_s=track.t_s[:length], v=track.v[:length])
        for track, length in zip(part.tracks, lengths, strict=True)
    ]
    exact = _read_exact(part.exact) if part.exact.lanes else _from_bands(part)
    ends = [end for lane in exact.lanes for end in lane.end_s]
    sampled = (t for track in tracks for t in track.t_s if t is not None)
    return Timeline(
        end_s=max(0.0, part.end_s, max(ends, default=0.0), max(sampled, default=0.0)),
        ranks=_read_rank_buckets(part.ranks),
        exact=exact,
        tracks=tracks,
        tracks_left_out=max(0, part.tracks_left_out),
    )


def read_step_buckets(
    part: parts.StepBuckets, steps: list[StepTime], heatmap: Heatmap
) -> StepBuckets:
    """Return the buckets; for a document without them those of its steps, one each."""
    buckets = _read_buckets(part)
    if not buckets:
        return _of_steps(steps, heatmap)
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


def _of_steps(steps: list[StepTime], heatmap: Heatmap) -> StepBuckets:
    is_timed = bool(steps)
    if not steps:
        lengths = column_means(heatmap.step_seconds, len(heatmap.steps))
        steps = [
            StepTime(number, float(number) - 0.5, float(number) + 0.5, seconds, _STEADY, None)
            for number, seconds in zip(heatmap.steps, lengths, strict=True)
            if seconds is not None
        ]
    numbers = [step.number for step in steps]

    def of_each(rows: list[Numbers]) -> Numbers:
        means = dict(zip(heatmap.steps, column_means(rows, len(heatmap.steps)), strict=True))
        return [means.get(number) for number in numbers]

    steady = [step for step in steps if step.kind == _STEADY] or steps
    among = {step.number for step in steady}
    phases = {name: of_each(rows) for name, rows in heatmap.phase_seconds.items()}
    return StepBuckets(
        buckets=[
            Bucket(s.number, s.number, 1, s.kind not in _UNUSED, s.kind, s.start_s, s.end_s)
            for s in steps
        ],
        seconds=[step.seconds for step in steps],
        worst=[Worst(step.seconds, step.number, step.slowest_rank) for step in steps],
        phases_s=phases,
        waits_s={name: of_each(rows) for name, rows in heatmap.phase_wait_seconds.items()},
        median_s=median([step.seconds for step in steady] or [0.0]),
        median_phases_s={
            name: median(values)
            for name, row in phases.items()
            if (
                values := [
                    v for v, n in zip(row, numbers, strict=True) if v is not None and n in among
                ]
            )
        },
        is_timed=is_timed,
    )


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


def _from_bands(part: parts.Timeline) -> parts.Exact:
    """What a document without exact windows knows: the bands, as one window."""
    end_s = max([part.end_s, *(band.end_s or 0.0 for band in part.bands)])
    names = sorted({band.phase for band in part.bands})

    def length_s(band: parts.Band) -> float:
        return (end_s if band.end_s is None else band.end_s) - band.start_s

    longest_first = sorted(part.bands, key=length_s, reverse=True)
    left_out = longest_first[_MOST_BANDS:]
    by_rank: dict[int, list[parts.Band]] = defaultdict(list)
    for band in longest_first[:_MOST_BANDS]:
        by_rank[band.rank].append(band)
    lanes = []
    for rank in sorted(by_rank):
        bands = sorted(by_rank[rank], key=lambda band: (band.start_s, band.phase.count("/")))
        starts = [max(0.0, band.start_s) for band in bands]
        ends = [end_s if band.end_s is None else band.end_s for band in bands]
        lanes.append(
            parts.ExactLane(
                rank=rank,
                name=[names.index(band.phase) for band in bands],
                depth=[min(8, band.phase.count("/")) for band in bands],
                start_s=starts,
                end_s=[max(pair) for pair in zip(starts, ends, strict=True)],
                meeting=[-1] * len(bands),
                open=[at for at, band in enumerate(bands) if band.open],
            )
        )
    windows = [parts.ExactWindow(why="whole", end_s=end_s)] if lanes and end_s > 0 else []
    longest_s = max(0.0, length_s(left_out[0])) if left_out else 0.0
    return parts.Exact(
        windows=windows,
        names=names,
        lanes=lanes,
        spans_left_out=len(left_out),
        longest_left_out_s=longest_s,
    )


def column_means(rows: list[Numbers], width: int) -> Numbers:
    """Return the mean of each of `width` columns, None where nothing is known."""
    return [known_mean([row[at] for row in rows]) for at in range(width)]


def _in_order(by_phase: dict[str, Any]) -> dict[str, Any]:
    return {name: by_phase[name] for name in sorted(by_phase, key=order_of)}
