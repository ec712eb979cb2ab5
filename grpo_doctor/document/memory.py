"""The document's memory part: the estimate from the job's own settings, and its first step."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace

import numpy as np

from grpo_doctor.analysis import Analysis
from grpo_doctor.analysis.gpu import MEMORY, rank_gpus
from grpo_doctor.analysis.sampled import max_over, series_named, values_in
from grpo_doctor.errors import GrpoDoctorError
from grpo_doctor.knobs.advice import instruct
from grpo_doctor.launches.model import SUPPORTED, Launch
from grpo_doctor.memory import Edit, Machine, Setup, ledger_of, model_shape, setup_of
from grpo_doctor.memory.anchor import LOADED, Anchor, Held, anchor, with_rows_of
from grpo_doctor.memory.edits import SOLVABLE, apply, spending
from grpo_doctor.memory.models import shape_of
from grpo_doctor.memory.models.shape import ModelShape
from grpo_doctor.phases import PHASES
from grpo_doctor.trace.instructions import job_of, place_of_run
from grpo_doctor.trace.intervals import Intervals
from grpo_doctor.trace.model import Run, Series, Trace
from grpo_doctor.whatif.room import USABLE
from grpo_doctor_reports.schema.report import MemoryAdvice, MemoryCompared

_PLACES = "train/token_places"
_CPU = "not modeled: host memory of CPU runs"
_LARGEST = "train.micro_batch"
_LENGTHS = {"data.max_length", "rollout.max_completion_length"}


class NotComparableError(Exception):
    """Why the recording cannot be compared with what its settings predict."""


@dataclass(frozen=True, slots=True)
class _MostUsed:
    column: int
    rank: int
    series: Series
    capacity_bytes: int


def memory_entry(analysis: Analysis) -> MemoryCompared:
    """Return what the recorded settings predict of the first step, and what was measured.

    A prediction that was wrong for this run is the base of nothing.
    """
    trace = analysis.trace
    try:
        most_used = _most_used(analysis)
        setup = run_setup(trace, most_used.capacity_bytes)
        row_tokens = _row_tokens(analysis, most_used, setup)
        recorded = setup if row_tokens is None else with_rows_of(setup, row_tokens)
        anchored = anchor(recorded, _maxima(analysis, most_used))
    except NotComparableError as problem:
        return MemoryCompared(reason=str(problem))
    except (GrpoDoctorError, ValueError, ZeroDivisionError, KeyError) as problem:
        return MemoryCompared(reason=f"not estimated: {problem}")
    right = anchored.predicted.low <= anchored.measured_bytes <= anchored.predicted.high
    extends = right and trace.run.facts.keys() >= _LENGTHS
    return MemoryCompared(
        rank=most_used.rank,
        capacity_bytes=most_used.capacity_bytes,
        low_bytes=anchored.predicted.low,
        predicted_bytes=anchored.predicted.middle,
        high_bytes=anchored.predicted.high,
        measured_bytes=anchored.measured_bytes,
        row_tokens=row_tokens,
        longest_row_tokens=setup.prompt_tokens + setup.completion_tokens if extends else None,
        longest_bytes=anchored.bytes(setup) if extends else None,
        advice=_advice(trace, setup, anchored, most_used.capacity_bytes) if extends else [],
    )


# -- what was measured


def _most_used(analysis: Analysis) -> _MostUsed:
    """Return the rank whose GPU has the highest memory use in the first step."""
    trace = analysis.trace
    if trace.run.origin is not None:
        raise NotComparableError(f"{trace.run.origin.what} has no memory samples")
    if not len(analysis.steps.numbers):
        raise NotComparableError("no step was recorded")
    capacities = {gpu.uuid: gpu.memory_total_bytes for gpu in trace.gpus if gpu.visible}
    if not capacities:
        on_cpu = trace.run.config.get("device") == "cpu" or trace.run.config.get("use_cpu") is True
        raise NotComparableError(_CPU if on_cpu else "no GPU's memory was sampled")
    owner = {uuid: rank for rank, uuid in rank_gpus(trace).items()}
    by_rank = {
        owner[s.gpu]: s for s in series_named(trace, MEMORY) if s.gpu is not None and s.gpu in owner
    }
    peaks: dict[int, float] = {}
    for column, rank in enumerate(analysis.ranks):
        end = int(analysis.steps.end_ns[0, column])
        if rank in by_rank and end >= 0:
            peaks[column] = max_over(by_rank[rank], _until(end)) or 0.0
    column = max(peaks, key=peaks.__getitem__, default=-1)
    if not peaks.get(column):
        raise NotComparableError("no memory was sampled in the first step")
    rank = analysis.ranks[column]
    series = by_rank[rank]
    return _MostUsed(column, rank, series, capacities[series.gpu or ""])


def _until(end_ns: int) -> Intervals:
    return Intervals(np.array([0], np.int64), np.array([max(1, end_ns)], np.int64))


def _maxima(analysis: Analysis, most_used: _MostUsed) -> list[Held]:
    """Return the running maximum at the end of each phase of the first step, and before it."""
    begin = int(analysis.steps.start_ns[0, most_used.column])
    end = int(analysis.steps.end_ns[0, most_used.column])
    track = analysis.tracks[most_used.column]
    inside = (track.pieces.start_ns >= begin) & (track.pieces.end_ns <= end)
    codes, piece_ends = track.phase[inside].tolist(), track.pieces.end_ns[inside].tolist()
    ends = {PHASES[code]: piece_end for code, piece_end in zip(codes, piece_ends, strict=True)}
    loaded = max_over(most_used.series, _until(begin))
    if loaded is None:
        raise NotComparableError("memory was not sampled before the first step")
    ordered = sorted(ends, key=ends.__getitem__)
    return [
        Held(LOADED, loaded),
        *(Held(phase, max_over(most_used.series, _until(ends[phase])) or 0.0) for phase in ordered),
    ]


def _row_tokens(analysis: Analysis, most_used: _MostUsed, setup: Setup) -> int | None:
    """Tokens of a row of the first step's largest micro-batch, padding included, if recorded."""
    steps, column = analysis.steps, most_used.column
    begin, end = int(steps.start_ns[0, column]), int(steps.end_ns[0, column])
    window = Intervals(np.array([begin], np.int64), np.array([end], np.int64))
    places = [
        float(values.max())
        for series in series_named(analysis.trace, _PLACES)
        if series.rank == most_used.rank and len(values := values_in(series, window))
    ]
    return max(1, round(max(places) / setup.micro_batch)) if places else None


# -- what was predicted


def run_setup(trace: Trace, card_bytes: int) -> Setup:
    """Return the recorded settings as `check` would read them from a launch.

    Raises:
        NotComparableError: they are not known.
        GrpoDoctorError: the launch is not modeled.
    """
    run = trace.run
    if run.framework not in SUPPORTED:
        raise NotComparableError(f"the settings of {run.framework} are not known here")
    hosts = max(1, len({p.host for p in trace.processes if p.carries_steps}))
    per_node = max(1, (run.world_size or len(trace.ranks)) // hosts)
    launch = Launch(
        framework=run.framework,
        version=run.framework_version,
        role="train",
        versions=dict(run.versions),
        settings=dict(run.knobs),
        processes_per_node=per_node,
        nodes=hosts,
        launcher="torchrun",
        model=str(run.facts.get("model.name") or "") or None,
        backend="megatron" if run.facts.get("parallel.strategy") == "megatron" else "",
    )
    machine = Machine(card_bytes, per_node, nodes=hosts)
    job = setup_of(launch, machine, _shape(run))
    if job.trainer is None:
        raise NotComparableError("the recording is of a server")
    return job.trainer


def _shape(run: Run) -> ModelShape:
    """By the model's name, else a decoder of the sizes that the job described, with heads of 64."""
    name = str(run.facts.get("model.name") or "")
    try:
        if name:
            return model_shape(name)
    except GrpoDoctorError:
        pass
    keys = ("hidden_size", "intermediate_size", "num_hidden_layers", "vocab_size")
    sizes = {key: run.config.get(f"model_{key}") for key in keys}
    if not all(isinstance(size, int) and size > 0 for size in sizes.values()):
        raise NotComparableError(
            f"the shape of {name or 'the model'} is not known: its config.json is not here"
        )
    heads = max(1, int(sizes["hidden_size"] or 0) // 64)
    config = {**sizes, "num_attention_heads": heads}
    shapes = [
        shape_of(name or "the model", {**config, "tie_word_embeddings": tied}, "the recording")
        for tied in (True, False)
    ]
    counted = run.config.get("model_parameters")
    parameters = counted if isinstance(counted, int) else shapes[0].parameters
    return min(shapes, key=lambda shape: abs(shape.parameters - parameters))


# -- what follows from it


def _advice(trace: Trace, setup: Setup, anchored: Anchor, capacity: int) -> list[MemoryAdvice]:
    """Return what would be faster with more memory, and the largest micro-batch.

    With rows as long as the settings allow: those of the first step may have been short.
    """
    limit = USABLE * capacity
    edits = [edit for edit in spending(setup) if edit.knob != _LARGEST]
    values = SOLVABLE[_LARGEST]
    fitting = bisect_right(
        values, limit, key=lambda value: anchored.bytes(apply(setup, _LARGEST, int(value)))
    )
    largest = values[fitting - 1] if fitting else setup.micro_batch
    if largest != setup.micro_batch:
        edits.append(Edit(_LARGEST, int(largest), "", 0))
    job = job_of(trace.run, place_of_run(trace))
    advice = []
    for edit in edits:
        changed = apply(setup, edit.knob, edit.value)
        needed = anchored.bytes(changed)
        how = instruct(job, edit.knob, edit.value)
        if how is not None:
            alone = ledger_of(replace(changed, card_bytes=capacity)).state == "fits"
            advice.append(
                MemoryAdvice(
                    knob=edit.knob,
                    spelling=how.sentence,
                    bytes=needed,
                    fits=needed <= limit,
                    fits_by_ledger=alone,
                )
            )
    return advice
