"""A job whose steps a driver carries, such as verl's and OpenRLHF's, from the ranks that train.

The driver waits for the worker: its phases are the rank's, and what the rank's own process, an
actor, did within them is finer. Rewards that others compute while the driver waits for the rollout
are `reward` as soon as nothing is generated any more.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from grpo_doctor.phases import phase_of
from grpo_doctor.trace import columns
from grpo_doctor.trace.intervals import innermost, overlaps, subtract, union
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
        spans = trace.spans
        others = (spans.process != driver.index) | (spans.thread != steps.thread[0])
        return replace(trace, spans=columns.join([spans.select(others), block]))
    blocks = [_of_actor(block, actor) for actor in actors.values()]
    own = np.isin(trace.spans.process, [p.index for p in actors.values()])
    spans = replace(
        trace.spans,
        thread=np.where(own, 0, trace.spans.thread),
        depth=np.where(own, trace.spans.depth + _DEEPER, trace.spans.depth).astype(np.int16),
    )
    return replace(
        trace,
        processes=tuple(_as_rank(p, driver) for p in trace.processes),
        spans=columns.join([spans.select(~own | (spans.kind != Kind.STEP)), *blocks]),
    )


def _driver(trace: Trace) -> Process | None:
    drivers = [p for p in trace.processes if p.role == "driver"]
    kinds = [trace.spans.kind[trace.spans.of_process(p.index)] for p in drivers]
    stepping = [p for p, kind in zip(drivers, kinds, strict=True) if (kind == Kind.STEP).any()]
    return stepping[-1] if stepping else None


def _main_thread(trace: Trace, driver: Process) -> Spans:
    spans = trace.spans.select(trace.spans.of_process(driver.index))
    main = np.bincount(spans.thread[spans.kind == Kind.STEP]).argmax()
    return spans.select(spans.thread == main)


def _as_rank(process: Process, driver: Process) -> Process:
    """Ray kills actors when the driver is done: they end as it does."""
    if process.role == _TRAINS:
        return replace(process, role="trainer", state=driver.state)
    return replace(process, role="worker") if process.role == driver.role else process


def _of_actor(block: Spans, actor: Process) -> Spans:
    return replace(
        block, process=np.full_like(block.process, actor.index), thread=np.zeros_like(block.thread)
    )


def _rewards(trace: Trace, driver: Process, steps: Spans) -> Spans:
    """Return what others scored while the driver waited for a rollout and nothing was generated.

    Nothing where no process says when it generates: it may have all the time.
    """
    rollout, reward = (
        np.array([phase_of(name) == phase for name in trace.names], dtype=np.bool_)
        for phase in ("rollout", "reward")
    )
    spans = trace.spans
    working = (spans.process != driver.index) & (spans.kind == Kind.SPAN)
    generating = spans.select(working & rollout[spans.name])
    scoring = spans.select(working & reward[spans.name])
    awaited = steps.select((steps.kind == Kind.SPAN) & rollout[steps.name])
    if not len(generating):
        return columns.join([])
    scoring = scoring.select(np.lexsort((-scoring.end_ns, scoring.start_ns)))
    pieces, owner = innermost(scoring.start_ns, scoring.end_ns)
    alone = subtract(pieces, union(generating.start_ns, generating.end_ns))
    within = overlaps(alone.intervals, union(awaited.start_ns, awaited.end_ns))
    stretches = replace(
        scoring.select(owner[alone.left[within.left]]),
        start_ns=within.start_ns,
        end_ns=within.end_ns,
    )
    return _as_drivers(_joined(stretches), steps)


def _joined(spans: Spans) -> Spans:
    """One span for those of a name that touch: calls side by side are not one after the other."""
    if not len(spans):
        return spans
    breaks = (spans.start_ns[1:] != spans.end_ns[:-1]) | (np.diff(spans.name) != 0)
    first, last = np.r_[True, breaks], np.r_[breaks, True]
    return replace(spans.select(last), start_ns=spans.start_ns[first])


def _as_drivers(spans: Spans, steps: Spans) -> Spans:
    return replace(
        spans,
        process=np.full_like(spans.process, steps.process[0]),
        thread=np.full_like(spans.thread, steps.thread[0]),
        depth=np.full_like(spans.depth, steps.depth.max() + _DEEPER),
        args=np.full_like(spans.args, -1),
    )
