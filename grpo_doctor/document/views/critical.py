"""What made a step so long: the critical paths of two steps, and collectives."""

from __future__ import annotations

import numpy as np

from grpo_doctor.analysis import Analysis
from grpo_doctor.analysis.critical import Segment, critical_path, joined
from grpo_doctor.analysis.groups import group_times
from grpo_doctor.document.numbers import SECONDS_DIGITS, seconds
from grpo_doctor_reports.schema.views import CollectiveEntry, CriticalPath, PathSegment

# More than a screen shows; a step with a collective per layer has thousands.
MAX_SEGMENTS = 400


def median_path(analysis: Analysis) -> CriticalPath | None:
    """Return the path of the used step of median length; None without any."""
    lengths = analysis.step_seconds
    if not len(lengths):
        return None
    return _path(analysis, int(np.argsort(lengths, kind="stable")[len(lengths) // 2]))


def worst_path(analysis: Analysis) -> CriticalPath | None:
    """Return the path of the longest used step; None without any."""
    lengths = analysis.step_seconds
    return _path(analysis, int(lengths.argmax())) if len(lengths) else None


def _path(analysis: Analysis, used: int) -> CriticalPath | None:
    origin = analysis.trace.run.origin
    if origin and origin.durations_only:  # whose order is only usual, and whose gaps are unknown
        return None
    row = int(analysis.steps.used[used])
    path = thinned(critical_path(analysis, row), MAX_SEGMENTS)
    if not path:
        return None
    return CriticalPath(
        step=int(analysis.steps.numbers[row]),
        seconds=seconds(path[-1].end_ns - path[0].start_ns),
        segments=[
            PathSegment(
                lane=segment.lane,
                rank=segment.rank,
                phase=segment.phase,
                name=segment.name,
                start_s=seconds(segment.start_ns),
                end_s=seconds(segment.end_ns),
                kind=segment.kind,
            )
            for segment in path
        ],
    )


def thinned(path: list[Segment], limit: int) -> list[Segment]:
    """At most `limit` segments without holes: names are given up first, then the shortest
    segments, whose time goes to their neighbor."""
    if len(path) > limit:
        path = joined([segment._replace(name=segment.phase) for segment in path])
    if len(path) <= limit:
        return path
    length = np.array([segment.end_ns - segment.start_ns for segment in path])
    longest = np.sort(np.argsort(-length, kind="stable")[:limit])
    ends = [*(path[row].start_ns for row in longest[1:]), path[-1].end_ns]
    begins = [path[0].start_ns, *ends[:-1]]
    return [
        path[row]._replace(start_ns=start, end_ns=end)
        for row, start, end in zip(longest.tolist(), begins, ends, strict=True)
    ]


MAX_ENTRIES = 30


def collective_entries(analysis: Analysis) -> list[CollectiveEntry]:
    """Return the longest kinds of collective; [] where none could be matched."""
    return [
        CollectiveEntry(
            group=times.group,
            name=times.name,
            phase=times.phase,
            count=round(times.per_step, 3),
            seconds=round(times.seconds, SECONDS_DIGITS),
            skew_seconds=round(times.skew_s, SECONDS_DIGITS),
            transfer_seconds=round(times.transfer_s, SECONDS_DIGITS),
            last_rank=times.last_rank,
        )
        for times in group_times(analysis)[:MAX_ENTRIES]
    ]
