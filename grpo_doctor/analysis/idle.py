"""Time of a rank in which it does nothing that anybody saw.

Two kinds: nothing is open on its main thread, neither a phase nor a span of the user's own nor a
collective; or it waits for a rollout engine that is a server of its own.
"""

from __future__ import annotations

import numpy as np

from grpo_doctor.analysis.intervals import Intervals, gaps, intersect, subtract, union
from grpo_doctor.analysis.rows import RankRows
from grpo_doctor.analysis.steps import Steps
from grpo_doctor.trace.model import Kind, Trace

ENGINE_SPAN = "rollout/generate"
_OPEN = (Kind.SPAN, Kind.COLLECTIVE, Kind.COLLECTIVE_WAIT)


def has_engine(trace: Trace) -> bool:
    """Whether completions are made by a server beside the ranks, which then only wait for it."""
    knobs = trace.run.knobs
    return knobs.get("vllm.mode") == "server" and knobs.get("vllm.use") is not False


def engine_waits(trace: Trace, main: RankRows) -> Intervals:
    """When a rank waited for the engine; never where the engine is inside the rank."""
    if not has_engine(trace) or ENGINE_SPAN not in trace.names:
        return union(trace.spans.start_ns[:0], trace.spans.end_ns[:0])
    spans = trace.spans
    named = spans.name[main.rows] == trace.names.index(ENGINE_SPAN)
    rows = main.rows[named & (spans.kind[main.rows] == Kind.SPAN)]
    return union(spans.start_ns[rows], spans.end_ns[rows])


def idle(
    trace: Trace, steps: Steps, column: int, main: RankRows, taken: tuple[Intervals, Intervals]
) -> Intervals:
    """One rank's idle time within its steps, beside its waits and transfers, which are `taken`."""
    spans, rows = trace.spans, main.rows
    windows, _ = steps.windows(column)
    rows = rows[np.isin(spans.kind[rows], _OPEN)]
    nothing = intersect(windows, gaps(union(spans.start_ns[rows], spans.end_ns[rows])))
    engine = engine_waits(trace, main)
    for other in taken:
        engine = subtract(engine, other).intervals
    return union(
        np.concatenate([nothing.start_ns, engine.start_ns]),
        np.concatenate([nothing.end_ns, engine.end_ns]),
    )
