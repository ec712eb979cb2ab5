"""Phases by the GPU's own clock: what CUDA events at both ends of spans measured.

A host's time says when work was queued. Where a framework does not wait for the GPU, the phase that
next needs a result has the time of those before it.
"""

from __future__ import annotations

import numpy as np

from grpo_doctor.analysis.intervals import covers
from grpo_doctor.analysis.steps import Steps
from grpo_doctor.phases import phase_of
from grpo_doctor.trace.model import Kind, Process, Spans, Trace

# The others wait for files, processes and networks, and queue little.
DEVICE_PHASES = ("rollout", "logprob", "train", "optimizer", "sync", "offload")


def device_seconds(trace: Trace, ranks: tuple[int, ...], steps: Steps) -> dict[str, float]:
    """Return seconds of each phase per used step on the GPU, without those of phases within it.

    The mean over the ranks that have any; phases without a measured span are absent.
    """
    totals: dict[str, float] = {}
    measured = 0
    for column, rank in enumerate(ranks):
        windows, _ = steps.windows(column, used=True)
        own = [p.index for p in trace.processes if p.rank == rank and _computes(p)]
        seconds: dict[str, float] = {}
        for process in own:
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


def _computes(process: Process) -> bool:
    return process.carries_steps or process.role == "actor"


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
