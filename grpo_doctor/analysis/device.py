"""Phases by the GPU's own clock: what CUDA events at both ends of spans measured.

A host's time says when work was queued. Where a framework does not wait for the GPU, the phase that
next needs a result has the time of those before it.

Spans where the GPU was in them: host times moved by what CUDA events measured.

A host that does not wait for the GPU leaves a span as soon as its work is queued, and pays in the
next one that needs a result. So a span that was measured begins when the GPU came to it, and ends
when the GPU had done what was queued in it:

    begin = max(the host's begin, the end of what was queued before)
    end   = max(the host's end, begin + the time between the span's two events)

A moment in which the GPU had nothing to do belongs to the span in which the host was. Steps stay
where the host had them, which is how long they took; what the GPU did after a step's end is time of
the next one, so that phases add up to steps in both.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from grpo_doctor.analysis.steps import Steps
from grpo_doctor.phases import phase_of
from grpo_doctor.trace.columns import in_order
from grpo_doctor.trace.intervals import Rows, Times, covers
from grpo_doctor.trace.model import Kind, Spans, Trace

# The others wait for files, processes and networks, and queue little.
DEVICE_PHASES = ("rollout", "logprob", "train", "optimizer", "sync", "offload")


def device_seconds(trace: Trace, ranks: tuple[int, ...], steps: Steps) -> dict[str, float]:
    """Return seconds of each phase per used step on the GPU, without those of phases within it.

    The mean over the ranks that have any; phases without a measured span are absent.
    """
    totals: dict[str, float] = {}
    measured = 0
    own: dict[int, list[int]] = {}
    for computing in trace.processes:
        if computing.carries_steps or computing.role == "actor":
            own.setdefault(computing.rank, []).append(computing.index)
    for column, rank in enumerate(ranks):
        windows, _ = steps.windows(column, used=True)
        seconds: dict[str, float] = {}
        for process in own.get(rank, ()):
            block = trace.spans.of_process(process)
            chosen = block.start + np.flatnonzero(trace.spans.kind[block] == Kind.CUDA_SPAN)
            starts = trace.spans.start_ns[chosen]
            inside = covers(windows, starts)
            for phase, length_s in _by_phase(trace, trace.spans.select(chosen[inside])):
                seconds[phase] = seconds.get(phase, 0.0) + length_s
        if seconds:
            measured += 1
            for phase, length_s in seconds.items():
                totals[phase] = totals.get(phase, 0.0) + length_s / len(windows)
    return {phase: total / measured for phase, total in totals.items()}


def _by_phase(trace: Trace, spans: Spans) -> list[tuple[str, float]]:
    """Each measured span's phase and its seconds less those of the spans directly within it."""
    own_ms = spans.value.tolist()
    open_rows: list[int] = []
    order = np.lexsort((spans.depth, spans.start_ns, spans.thread)).tolist()
    for row in order:
        while open_rows and not _within(spans, row, open_rows[-1]):
            open_rows.pop()
        if open_rows:
            own_ms[open_rows[-1]] -= float(spans.value[row])
        open_rows.append(row)
    phases = (phase_of(trace.names[name]) for name in spans.name)
    return [(phase, max(0.0, ms) / 1e3) for phase, ms in zip(phases, own_ms) if phase is not None]


def _within(spans: Spans, row: int, outer: int) -> bool:
    same_thread = spans.thread[row] == spans.thread[outer]
    deeper = spans.depth[row] > spans.depth[outer]
    return bool(same_thread and deeper and spans.end_ns[row] <= spans.end_ns[outer])


# Both events are recorded outside of the host's times, some 5 us from them. What is taken off too
# much is corrected where the host waits next; what is left too much would add up over a run.
_OUTSIDE_NS = 50_000
# Below it a difference of the two clocks is a thread that had to wait for Python's lock.
_TELLING_NS = 1_000_000
_MOST_NS = 1e15  # eleven days


def on_device_clock(trace: Trace) -> Trace:
    """The same trace with the spans of each thread that has CUDA events where the GPU was."""
    spans = trace.spans
    events = np.flatnonzero(spans.kind == Kind.CUDA_SPAN)
    if not len(events):
        return trace
    start_ns, end_ns = spans.start_ns.copy(), spans.end_ns.copy()
    lanes = np.stack([spans.process[events], spans.thread[events]])
    for process, thread in np.unique(lanes, axis=1).T.tolist():
        of_lane = events[(lanes[0] == process) & (lanes[1] == thread)]
        if not _differs(spans, of_lane):
            continue
        block = spans.of_process(process)
        on_thread = (spans.thread[block] == thread) & (spans.kind[block] == Kind.SPAN)
        rows = block.start + np.flatnonzero(on_thread)
        # A damaged length moves nothing beyond what was recorded.
        seen_ns = spans.end_ns[block].max()
        placed = _placed(spans, rows, of_lane)
        start_ns[rows], end_ns[rows] = (np.minimum(times, seen_ns) for times in placed)
    return replace(trace, spans=in_order(replace(spans, start_ns=start_ns, end_ns=end_ns)))


def _differs(spans: Spans, events: Rows) -> bool:
    """Return whether the GPU's clock says anything that the host's does not."""
    host_ns = spans.end_ns[events] - spans.start_ns[events]
    return bool((np.abs(spans.value[events] * 1e6 - host_ns) > _TELLING_NS).any())


def _placed(spans: Spans, rows: Rows, events: Rows) -> tuple[Times, Times]:
    """Begin and end of each row of one thread, in its order; shape (rows,) each."""
    host_begin, host_end = spans.start_ns[rows], spans.end_ns[rows]
    took_ns = _took_ns(spans, rows, events)
    # A host that was in the span for longer than the GPU waited for what no span had queued.
    late = (took_ns >= 0) & (host_end - host_begin - took_ns > _TELLING_NS)
    earliest = np.where(late, host_end - took_ns, host_begin).tolist()
    shortest_ns = np.maximum(0, took_ns - _OUTSIDE_NS).tolist()
    ends = host_end.tolist()
    begin, end = list(earliest), list(ends)
    within: list[int] = []
    reached = 0

    def close(row: int) -> None:
        nonlocal reached
        reached = end[row] = max(reached, ends[row], begin[row] + shortest_ns[row])

    for row, opened in enumerate(host_begin.tolist()):
        while within and ends[within[-1]] <= opened:
            close(within.pop())
        reached = begin[row] = max(reached, earliest[row])
        within.append(row)
    while within:
        close(within.pop())
    return np.array(begin, dtype=np.int64), np.array(end, dtype=np.int64)


def _took_ns(spans: Spans, rows: Rows, events: Rows) -> Times:
    """Return nanoseconds between the two events of each row; -1 where there are none."""
    columns = (spans.start_ns, spans.end_ns, spans.depth, spans.name)
    keys = zip(*(column[events].tolist() for column in columns))
    measured_ns = np.rint(np.nan_to_num(spans.value[events], nan=-1.0) * 1e6)
    took = dict(zip(keys, np.clip(measured_ns, -1, _MOST_NS).astype(np.int64).tolist()))
    own = zip(*(column[rows].tolist() for column in columns))
    return np.array([took.get(key, -1) for key in own], dtype=np.int64)
