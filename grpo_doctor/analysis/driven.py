"""A job whose steps a driver carries, such as verl's and OpenRLHF's, told by the ranks that train.

The driver waits for whoever works: its phases are the rank's, and what the rank's own process, an
actor, did within them is finer. Rewards that others compute while the driver waits for the rollout
are `reward` as soon as nothing is generated any more.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from grpo_doctor.analysis.intervals import innermost, overlaps, subtract, union
from grpo_doctor.phases import phase_of
from grpo_doctor.trace import columns
from grpo_doctor.trace.model import Kind, Process, Spans, Trace

_TRAINS = "actor"
_DEEPER = 1


def by_rank(trace: Trace) -> Trace:
    """The same trace where no driver has steps, else one in which each actor is a rank with them.

    Without actors that recorded anything the driver stays the one rank.
    """
    driver = _driver(trace)
    if driver is None:
        return trace
    steps = _main_thread(trace, driver)
    block = columns.join([steps, _rewards(trace, driver, steps)])
    actors = {p.rank: p for p in trace.processes if p.role == _TRAINS}
    if not actors:
        others = trace.spans.select(_others(trace, steps, driver))
        return replace(trace, spans=columns.join([others, block]))
    blocks = [_of_actor(block, actor) for actor in actors.values()]
    own = np.isin(trace.spans.process, [p.index for p in actors.values()])
    spans = replace(
        trace.spans,
        thread=np.where(own, 0, trace.spans.thread),
        depth=np.where(own, trace.spans.depth + _DEEPER, trace.spans.depth).astype(np.int16),
    )
    roles = {_TRAINS: "trainer", driver.role: "worker"}
    return replace(
        trace,
        processes=tuple(replace(p, role=roles.get(p.role, p.role)) for p in trace.processes),
        spans=columns.join([spans.select(~own | (spans.kind != Kind.STEP)), *blocks]),
    )


def _driver(trace: Trace) -> Process | None:
    drivers = [p for p in trace.processes if p.role == "driver"]
    kinds = [trace.spans.kind[trace.spans.of_process(p.index)] for p in drivers]
    stepping = [p for p, kind in zip(drivers, kinds, strict=True) if (kind == Kind.STEP).any()]
    return stepping[-1] if stepping else None


def _main_thread(trace: Trace, driver: Process) -> Spans:
    rows = _rows(trace, driver)
    threads = trace.spans.thread[rows]
    main = np.bincount(threads[trace.spans.kind[rows] == Kind.STEP]).argmax()
    return trace.spans.select(rows[threads == main])


def _others(trace: Trace, steps: Spans, driver: Process) -> NDArray[np.bool_]:
    spans = trace.spans
    mask: NDArray[np.bool_] = (spans.process != driver.index) | (spans.thread != steps.thread[0])
    return mask


def _rows(trace: Trace, process: Process) -> NDArray[np.intp]:
    block = trace.spans.of_process(process.index)
    return np.arange(block.start, block.stop)


def _of_actor(block: Spans, actor: Process) -> Spans:
    return replace(
        block,
        process=np.full_like(block.process, actor.index),
        thread=np.zeros_like(block.thread),
    )


def _rewards(trace: Trace, driver: Process, steps: Spans) -> Spans:
    """What others scored while the driver waited for a rollout and nothing was generated.

    Nothing where no process says when it generates: it may have all the time.
    """
    rollout, reward = (
        np.array([phase_of(name) == phase for name in trace.names], dtype=np.bool_)
        for phase in ("rollout", "reward")
    )
    spans = trace.spans
    working = (spans.process != driver.index) & (spans.kind == Kind.SPAN)
    generating = spans.select(working & rollout[spans.name])
    scoring = np.flatnonzero(working & reward[spans.name])
    awaited = steps.select((steps.kind == Kind.SPAN) & rollout[steps.name])
    if not len(generating) or not len(scoring) or not len(awaited):
        return columns.join([])
    scoring = scoring[np.lexsort((-spans.end_ns[scoring], spans.start_ns[scoring]))]
    pieces, owner = innermost(spans.start_ns[scoring], spans.end_ns[scoring])
    alone = subtract(pieces, union(generating.start_ns, generating.end_ns))
    owner = owner[alone.left]
    within = overlaps(alone.intervals, union(awaited.start_ns, awaited.end_ns))
    rows = scoring[owner[within.left]]
    count = len(rows)
    return columns.spans_from(
        {
            "kind": np.full(count, Kind.SPAN),
            "process": np.full(count, driver.index),
            "thread": np.full(count, steps.thread[0]),
            "depth": np.full(count, steps.depth.max() + _DEEPER),
            "name": spans.name[rows],
            "args": np.full(count, -1),
            "start_ns": within.start_ns,
            "end_ns": within.end_ns,
            "value": np.zeros(count),
            "open": spans.open[rows] & (within.end_ns == spans.end_ns[rows]),
        }
    )
