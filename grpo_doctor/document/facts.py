"""The document's `run`: what was trained, facts, ranks, and what was lost.

The verdicts that the watchdog left in a run directory, so that the report can link them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any, TypeVar

import msgspec
import numpy as np

from grpo_doctor.document.numbers import finite, number, seconds
from grpo_doctor.hang.collection.bundle import PAGE, VERDICT
from grpo_doctor.knobs.provenance import Provenance
from grpo_doctor.trace.jsonfile import whole
from grpo_doctor.trace.model import Kind, Process, Run, Trace
from grpo_doctor_probes.record.rundir import NODES
from grpo_doctor_probes.supervisor.watchdog import FOLDER
from grpo_doctor_reports.schema import report
from grpo_doctor_reports.schema.attach import SCHEMA, AttachDocument

_Entry = TypeVar("_Entry", report.ExitState, report.GpuEntry, report.LossEntry)
_OPEN_KINDS = (Kind.SPAN, Kind.COLLECTIVE, Kind.COLLECTIVE_WAIT)


def run_entry(trace: Trace) -> report.RunEntry:
    """Return the facts of a run."""
    run = trace.run
    hosts = dict.fromkeys(p.host for p in trace.processes)
    hosts |= dict.fromkeys(gpu.host for gpu in trace.gpus)
    facts = run.facts
    knobs = {str(name): finite(value) for name, value in run.knobs.items()}
    return report.RunEntry(
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
        exit=_as(run.exit, report.ExitState),
        knobs={name: value for name, value in knobs.items() if name in facts},
        provenance=dict.fromkeys(facts, run.settings.provenance.value),
        without_effect={name: value for name, value in knobs.items() if name not in facts},
        versions=dict(run.versions),
        gpus=[_as(gpu, report.GpuEntry) for gpu in trace.gpus if gpu.visible],
        ranks=rank_entries(trace),
        loss=_as(trace.loss, report.LossEntry),
        notes=list(trace.run.notes),
        clock=clock_entry(trace),
    )


def rank_entries(trace: Trace) -> list[report.RankEntry]:
    """Return every rank that recorded anything or should have, ascending; none of a log, whose
    lines are of the whole job."""
    if trace.run.origin and trace.run.origin.durations_only:
        return []
    # Of a restarted rank the last process tells its state.
    latest = {
        p.rank: p
        for p in sorted(trace.processes, key=lambda p: (p.start_ns or 0, p.index))
        if p.carries_steps
    }
    entries = [
        report.RankEntry(
            rank=process.rank,
            host=process.host,
            pid=process.os_pid,
            state=process.state,
            open=_open_spans(trace, process),
            clock_error_ns=process.clock.error_ns,
        )
        for process in latest.values()
    ]
    missing = [rank for rank in trace.loss.missing_ranks if rank not in latest]
    entries += [report.RankEntry(rank=rank, pid=0, state="missing") for rank in missing]
    return sorted(entries, key=lambda entry: entry.rank)


def _open_spans(trace: Trace, process: Process) -> list[report.OpenSpan]:
    """Return what was open at the end on all threads, outermost first; without steps."""
    spans = trace.spans
    block = spans.of_process(process.index)
    rows = block.start + np.flatnonzero(spans.open[block])
    rows = rows[np.isin(spans.kind[rows], _OPEN_KINDS)]
    order: Sequence[int] = np.lexsort((spans.depth[rows], spans.start_ns[rows])).tolist()
    return [
        report.OpenSpan(
            name=trace.names[spans.name[row]],
            open_s=seconds(spans.end_ns[row] - spans.start_ns[row]),
        )
        for row in rows[order]
    ]


def _as(fact: object, kind: type[_Entry]) -> _Entry:
    """A fact of the recording as the document's entry, whose members are named as its own."""
    return msgspec.convert(fact, kind, from_attributes=True)


_DIGITS = 3


def clock_entry(trace: Trace) -> report.ClockEntry:
    """Return the largest error of any rank's clock, and how the clocks were aligned."""
    ranks = [p for p in trace.processes if p.carries_steps]
    methods = list(dict.fromkeys(p.clock.method for p in ranks))
    errors = [p.clock.error_ns for p in ranks if p.clock.error_ns is not None]
    unknown = sorted(p.rank for p in ranks if p.clock.error_ns is None)
    worst_ms = max(errors) / 1e6 if errors and not unknown else None
    origin = trace.run.origin
    if origin and origin.durations_only:
        text = f"{origin.what} has durations and no clock"
    elif not ranks:
        text = "no rank recorded anything"
    elif unknown:
        numbers = ", ".join(map(str, unknown[:8])) + (" and others" if len(unknown) > 8 else "")
        text = (
            f"the clock of rank{'s' * (len(unknown) > 1)} {numbers} could not be aligned: its "
            f"waits are not attributed"
        )
    elif worst_ms:
        text = f"aligned by {methods[-1]} to {worst_ms:.3g} ms: shorter waits are not reported"
    else:
        text = "all ranks read the same clock"
    return report.ClockEntry(max_error_ms=number(worst_ms, _DIGITS), methods=methods, text=text)


_DIVIDED = {
    "parallel.tensor": "tensor",
    "parallel.pipeline": "pipeline",
    "parallel.context": "context",
    "parallel.expert": "expert",
}
_ENGINE_DIVIDED = {"vllm.tensor_parallel_size": "tensor", "vllm.data_parallel_size": "data"}


def model_name(run: Run) -> str:
    """Return the hub's name of the model, or the last part of its folder; empty where unknown."""
    name = str(run.facts.get("model.name") or "")
    return name if name.count("/") == 1 and not name.startswith(("/", ".")) else PurePath(name).name


def parallelism(run: Run) -> str:
    """`ZeRO-3, LoRA; vLLM colocate, tensor 2`: what the settings say; empty where they don't."""
    facts = run.facts
    trainer = [*_sharding(facts), *_divided(facts, _DIVIDED)]
    if not trainer and run.world_size > 1:
        says_all = run.settings.provenance is Provenance.READ
        trainer = ["data parallel"] if run.knobs and says_all else []
    if trains_adapters(run):
        trainer.append("LoRA")
    engine = []
    if facts.get("vllm.use") is True:
        engine = [f"vLLM {facts.get('vllm.mode') or ''}".strip(), *_divided(facts, _ENGINE_DIVIDED)]
    return "; ".join(", ".join(part) for part in (trainer, engine) if part)


def trains_adapters(run: Run) -> bool:
    """Return whether LoRA adapters were trained for sure: it was set, or an adapter rank was set
    and nothing else, such as a default, chooses to train all weights."""
    kind = run.setting("train.type")
    if kind.provenance.is_fact:
        return bool(kind.value == "lora")
    return kind.value != "full" and (whole(run.facts.get("train.lora_rank")) or 0) > 0


def _sharding(knobs: Mapping[str, Any]) -> list[str]:
    stage, preset = knobs.get("deepspeed.stage"), str(knobs.get("deepspeed.preset") or "")
    if stage is None and preset[:4] == "zero" and preset[4:5].isdigit():
        stage = preset[4]
    strategy = str(knobs.get("parallel.strategy") or "")
    sharding = [f"ZeRO-{stage}"] if stage is not None else []
    if strategy and not (sharding and strategy.lower() == "deepspeed"):
        sharding.append(strategy.upper() if strategy.startswith("fsdp") else strategy)
    return sharding


def _divided(knobs: Mapping[str, Any], names: Mapping[str, str]) -> list[str]:
    sizes = {word: whole(knobs.get(name)) or 0 for name, word in names.items()}
    return [f"{word} {size}" for word, size in sizes.items() if size > 1]


_MOST = 50
_MOST_STEPS = 3
# The page has these as well; in a report the process has gone.
_OF_A_PROCESS = re.compile(r"\bkill\b|\bpid\b|/proc/\d", re.IGNORECASE)
_LARGEST_BYTES = 32 << 20


def hang_entries(recording: Path) -> list[report.HangEntry]:
    """Return each verdict below `recording` that has a page; none outside a run directory.

    One that can't be read is linked without text: its page says more.
    """
    return [_entry(page, recording) for page in hang_pages(recording)]


def hang_pages(recording: Path) -> list[Path]:
    """Return the pages of these verdicts. A page is written after its verdict, and then stays."""
    every = f"{FOLDER}/*/{PAGE}"
    pages = [*sorted(recording.glob(every)), *sorted(recording.glob(f"{NODES}/*/{every}"))]
    return pages[:_MOST]


def _entry(page: Path, recording: Path) -> report.HangEntry:
    file = _read(page.with_name(VERDICT))
    return report.HangEntry(
        page=page.relative_to(recording).as_posix(),
        headline=file.verdict.summary,
        state=file.verdict.state,
        next_steps=[
            fix.text
            for fix in file.verdict.fixes
            if fix.text and not _OF_A_PROCESS.search(fix.text)
        ][:_MOST_STEPS],
        taken_unix_ns=file.taken_unix_ns,
    )


def _read(path: Path) -> AttachDocument:
    try:
        if path.stat().st_size <= _LARGEST_BYTES:
            return msgspec.json.decode(path.read_bytes(), type=AttachDocument)
    except (OSError, msgspec.MsgspecError):
        pass
    return AttachDocument(schema=SCHEMA)
