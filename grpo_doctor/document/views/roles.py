"""Processes beside the ranks on the run's timeline: how busy each rollout engine and loop was."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from grpo_doctor.analysis.intervals import Intervals, overlaps, union
from grpo_doctor.document.numbers import SECONDS_DIGITS, significant_column
from grpo_doctor.trace.model import Kind, Process, Trace
from grpo_doctor_reports.schema.views import TrackEntry

# What generates. A Ray job's actors carry the phases of the ranks themselves.
_ROLES = ("rollout", "engine", "rollout-loop")
# Beyond them a reader compares no curves; of a hundred engines the first ones stand for the rest.
MAX_PROCESSES = 8
_BUCKETS = 200
_SHORTEST_NS = 100_000_000
# Spans in which a process waits for others: not busy.
_WAITS = ("rollout/wait", "rollout/queue", "sync/pause")


def role_tracks(trace: Trace) -> list[TrackEntry]:
    """The share of time in which each such process was in any span of work, over the run."""
    processes = [p for p in trace.processes if p.role in _ROLES][:MAX_PROCESSES]
    tracks = [_track(trace, process) for process in processes]
    return [track for track in tracks if track is not None]


def _track(trace: Trace, process: Process) -> TrackEntry | None:
    busy = _busy(trace, process)
    duration_ns = trace.run.duration_ns
    if not len(busy) or duration_ns <= 0:
        return None
    count = max(1, min(_BUCKETS, duration_ns // _SHORTEST_NS))
    edges = np.linspace(0, duration_ns, count + 1).astype(np.int64)
    buckets = Intervals(edges[:-1], edges[1:])
    share = _share(busy, buckets)
    return TrackEntry(
        name=f"{process.role}.busy",
        label=f"{process.role} of {process.host}, pid {process.os_pid}: busy",
        unit="%",
        group="rank",
        t_s=np.round(buckets.start_ns / 1e9, min(3, SECONDS_DIGITS)).tolist(),
        v=significant_column(100 * share),
    )


def _busy(trace: Trace, process: Process) -> Intervals:
    spans = trace.spans
    block = spans.of_process(process.index)
    waits = [trace.names.index(name) for name in _WAITS if name in trace.names]
    works = (spans.kind[block] == Kind.SPAN) & ~np.isin(spans.name[block], waits)
    return union(spans.start_ns[block][works], spans.end_ns[block][works])


def _share(busy: Intervals, buckets: Intervals) -> NDArray[np.float64]:
    pieces = overlaps(busy, buckets)
    covered = np.bincount(pieces.right, weights=pieces.length_ns, minlength=len(buckets))
    return covered / (buckets.end_ns - buckets.start_ns)
