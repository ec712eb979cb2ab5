"""What could not be judged in a recording, in sentences, shown next to the report's numbers."""

from __future__ import annotations

import numpy as np

from grpo_doctor.analysis import Analysis
from grpo_doctor.phases import PHASES
from grpo_doctor_reports.formatting import listed

_FEW_STEPS = 4
_NAMED = 8


def not_judged(analysis: Analysis) -> list[str]:
    """Return one sentence per question that this recording leaves open."""
    origin = analysis.trace.run.origin
    questions = [
        *(origin.limits if origin else ()),
        *_about_steps(analysis),
        *_about_ranks(analysis),
        *_about_clocks(analysis),
    ]
    if analysis.by_host_clock_alone:
        phases = ", ".join(p for p in PHASES if p in analysis.by_host_clock_alone)
        questions.append(
            f"GPU time of {phases}: not measured with CUDA events; the times shown are host "
            f"times, when work was queued."
        )
    if analysis.trace.gpus and analysis.gpu_truly_busy is None:
        questions.append(
            "How busy the GPUs really were: neither SM activity nor a usable range of power was "
            "sampled."
        )
    return questions


def _about_steps(analysis: Analysis) -> list[str]:
    steps = analysis.steps
    count = len(steps.used)
    if not len(steps.numbers):
        where = "this file has none" if analysis.trace.run.origin else "no step was recorded"
        return [f"Step times: {where}."]
    questions = []
    if not count:
        questions.append("Step times: no step ended on every rank.")
    elif count < _FEW_STEPS:
        questions.append(
            f"How step times vary: only {count} step{'s' * (count > 1)} could be used."
        )
    if count and not analysis.used_seconds[:, :, :-1].any():
        questions.append("Where the step time goes: no phase was recorded.")
    return questions


def _about_ranks(analysis: Analysis) -> list[str]:
    steps, origin = analysis.steps, analysis.trace.run.origin
    if origin and len(analysis.ranks) < 2:  # what the file can't tell of ranks is in its limits
        return []
    if steps.stepping.sum() == 1 and analysis.trace.run.world_size <= 1:
        return ["Wait time: not measured, since there is only one rank."]
    questions = []
    missing = analysis.trace.loss.missing_ranks
    if missing:
        questions.append(
            f"{_ranks(list(missing))}: left no recording; others may have waited for it."
        )
    if steps.stepping.any() and not analysis.waits.collectives:
        questions.append("Who waits for whom: no collective could be matched between ranks.")
    silent = [r for r, s in zip(analysis.ranks, steps.stepping, strict=True) if not s]
    if silent and steps.stepping.any():
        questions.append(f"{_ranks(silent)}: recorded no step and is excluded from all means.")
    questions += _different_ends(analysis)
    return questions


def _different_ends(analysis: Analysis) -> list[str]:
    """Name ranks that died at different steps: later steps of the others are in no mean."""
    steps = analysis.steps
    columns = np.flatnonzero(steps.stepping & steps.closed.any(axis=0))
    if len(columns) < 2:
        return []
    last = len(steps.numbers) - 1 - steps.closed[::-1, columns].argmax(axis=0)
    if last.max() - last.min() <= 1:  # one step apart is how any job ends that is killed
        return []
    early = int(columns[last.argmin()])
    first, beyond = steps.numbers[last.min()], steps.numbers[last.max()]
    rank = f"rank {analysis.ranks[early]} ended after step {first}"
    return [f"Steps {first + 1} to {beyond}: {rank}; they are excluded from all means."]


def _about_clocks(analysis: Analysis) -> list[str]:
    questions = []
    withheld = analysis.waits.claims.withheld
    if withheld:
        questions.append(
            f"{withheld} wait{'s' * (withheld > 1)} in collectives: the ranks' clocks may be off "
            f"by more than these waits took."
        )
    jumped = _jumps(analysis)
    if jumped:
        questions.append(
            f"{_ranks(jumped)}: steps overlap or go back in time, so a clock jumped; the time of "
            "an overlap is counted once."
        )
    return questions


def _jumps(analysis: Analysis) -> list[int]:
    steps = analysis.steps
    jumped = []
    for column, rank in enumerate(analysis.ranks):
        rows = np.flatnonzero(steps.closed[:, column])
        start, end = steps.start_ns[rows, column], steps.end_ns[rows, column]
        if (start[1:] < end[:-1]).any():
            jumped.append(rank)
    return jumped


def _ranks(ranks: list[int]) -> str:
    return f"Rank{'s' * (len(ranks) > 1)} {listed(list(map(str, ranks)), _NAMED)}"
