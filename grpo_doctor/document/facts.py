"""The document's `run`: facts, ranks, and what was lost."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath
from typing import TypeVar

import msgspec
import numpy as np

from grpo_doctor.document.clocks import clock_entry
from grpo_doctor.document.numbers import finite, seconds
from grpo_doctor.document.setup import model_name, parallelism
from grpo_doctor.trace.model import Kind, Process, Trace
from grpo_doctor_reports.schema.report import (
    ExitState,
    GpuEntry,
    LossEntry,
    OpenSpan,
    RankEntry,
    RunEntry,
)

_Entry = TypeVar("_Entry", ExitState, GpuEntry, LossEntry)
_OPEN_KINDS = (Kind.SPAN, Kind.COLLECTIVE, Kind.COLLECTIVE_WAIT)


def run_entry(trace: Trace) -> RunEntry:
    """The facts of a run."""
    run = trace.run
    hosts = dict.fromkeys(p.host for p in trace.processes)
    hosts |= dict.fromkeys(gpu.host for gpu in trace.gpus)
    facts = run.facts
    knobs = {str(name): finite(value) for name, value in run.knobs.items()}
    return RunEntry(
        id=run.id,
        source=PurePath(trace.source).name or trace.source,
        command=list(run.command),
        framework=run.framework,
        framework_version=run.framework_version,
        model=model_name(run),
        parallelism=parallelism(run),
        hosts=[host for host in hosts if host != "unknown"],
        world_size=run.world_size,
        started_unix_ns=run.started_unix_ns,
        duration_s=seconds(run.duration_ns) if run.duration_ns else None,
        exit=_as(run.exit, ExitState),
        knobs={name: value for name, value in knobs.items() if name in facts},
        provenance=dict.fromkeys(facts, run.settings.provenance.value),
        without_effect={name: value for name, value in knobs.items() if name not in facts},
        versions=dict(run.versions),
        gpus=[_as(gpu, GpuEntry) for gpu in trace.gpus if gpu.visible],
        ranks=rank_entries(trace),
        loss=_as(trace.loss, LossEntry),
        notes=list(trace.run.notes),
        clock=clock_entry(trace),
    )


def rank_entries(trace: Trace) -> list[RankEntry]:
    """Every rank that recorded anything or should have, ascending."""
    # Of a restarted rank the last process tells its state.
    latest = {
        p.rank: p
        for p in sorted(trace.processes, key=lambda p: (p.start_ns or 0, p.index))
        if p.carries_steps
    }
    entries = [_rank(trace, process) for process in latest.values()]
    missing = [rank for rank in trace.loss.missing_ranks if rank not in latest]
    entries += [RankEntry(rank=rank, pid=0, state="missing") for rank in missing]
    return sorted(entries, key=lambda entry: entry.rank)


def _rank(trace: Trace, process: Process) -> RankEntry:
    return RankEntry(
        rank=process.rank,
        host=process.host,
        pid=process.os_pid,
        state=process.state,
        open=_open_spans(trace, process),
        clock_error_ns=process.clock_error_ns,
    )


def _open_spans(trace: Trace, process: Process) -> list[OpenSpan]:
    """What was open at the end on all threads, outermost first; steps are not told."""
    spans = trace.spans
    block = spans.of_process(process.index)
    rows = block.start + np.flatnonzero(spans.open[block])
    rows = rows[np.isin(spans.kind[rows], _OPEN_KINDS)]
    order: Sequence[int] = np.lexsort((spans.depth[rows], spans.start_ns[rows])).tolist()
    return [
        OpenSpan(
            name=trace.names[spans.name[row]],
            open_s=seconds(spans.end_ns[row] - spans.start_ns[row]),
        )
        for row in rows[order]
    ]


def _as(fact: object, kind: type[_Entry]) -> _Entry:
    """A fact of the recording as the document's entry, whose members are named as its own."""
    return msgspec.convert(fact, kind, from_attributes=True)
