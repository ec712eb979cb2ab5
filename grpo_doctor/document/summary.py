"""The document's `summary`: the mean step in numbers.

What could not be judged in a recording, in sentences, shown next to the report's numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from grpo_doctor.analysis import Analysis
from grpo_doctor.analysis.learning.curves import without_rollouts
from grpo_doctor.analysis.regimes import CHECKPOINT, EVAL, KINDS, WARMUP
from grpo_doctor.analysis.rows import COLUMNS, UNATTRIBUTED_CODE
from grpo_doctor.analysis.sampled import counter_sum
from grpo_doctor.document.numbers import PERCENT_DIGITS, SECONDS_DIGITS, SHARE_DIGITS, number
from grpo_doctor.document.utilization import utilization_entry
from grpo_doctor.document.verdict import tone, verdict
from grpo_doctor.findings import Results
from grpo_doctor.phases import PHASES
from grpo_doctor.trace.intervals import overlaps
from grpo_doctor_reports.formatting import listed
from grpo_doctor_reports.schema import report

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
    if without_rollouts(analysis):
        questions.append("Rewards: none under a known name, so this may be no GRPO run.")
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
    origin, subject = analysis.trace.run.origin, "Where the step time goes"
    said = any(limit.startswith(subject) for limit in origin.limits) if origin else False
    if count and not said and not analysis.used_seconds[:, :, :-1].any():
        questions.append(f"{subject}: no phase was recorded.")
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


TOKENS = "rollout/tokens"


def summary(
    analysis: Analysis,
    results: Results,
    ranks: Sequence[report.RankEntry],
    hangs: Sequence[report.HangEntry] = (),
) -> report.Summary:
    """Return the run in numbers; without any used step most of them are null."""
    steps, step_s = analysis.steps, analysis.step_s
    lengths = analysis.step_seconds
    tail = np.percentile(lengths, [10, 90]) if len(lengths) else [None, None]
    regimes, busy = analysis.regimes, analysis.gpu_truly_busy
    tokens_per_s, phases = _tokens_per_s(analysis), phase_entries(analysis)
    gpus = sum(gpu.visible for gpu in analysis.trace.gpus)
    return report.Summary(
        verdict=verdict(analysis, results, ranks, hangs),
        tone=tone(analysis, results),
        step_time_s=number(step_s),
        step_time_p10_s=number(tail[0]),
        step_time_p90_s=number(tail[1]),
        steps=len(steps.used),
        longest_step=_longest(analysis),
        steps_total=len(steps.numbers),
        warmup_steps=steps.warmup,
        phases=phases,
        unattributed=replace(
            phase_entry(analysis, UNATTRIBUTED_CODE),
            start_s=round(sum(phase.seconds for phase in phases.values()), SECONDS_DIGITS),
        )
        if step_s
        else None,
        gpu_busy_pct=number(analysis.gpu_busy[0] if analysis.gpu_busy else None, PERCENT_DIGITS),
        gpu_truly_busy_pct=number(busy[0] if busy else None, PERCENT_DIGITS),
        gpu_busy_by=busy[1].removeprefix("gpu.") if busy else None,
        tokens_per_s=number(tokens_per_s, PERCENT_DIGITS),
        tokens_per_s_per_gpu=number(tokens_per_s / gpus, PERCENT_DIGITS)
        if tokens_per_s is not None and gpus
        else None,
        utilization=utilization_entry(analysis),
        accounting=_accounting(analysis),
        steady=_steady(analysis),
        set_apart={
            KINDS[kind]: steps.numbers[regimes.rows(kind)].tolist()
            for kind in (CHECKPOINT, EVAL, WARMUP)
        },
        left_out=_left_out(analysis),
        not_judged=not_judged(analysis),
    )


def _longest(analysis: Analysis) -> report.LongestStep:
    lengths, steps = analysis.step_seconds, analysis.steps
    if not len(lengths):
        return report.LongestStep()
    row = int(lengths.argmax())
    return report.LongestStep(int(steps.numbers[steps.used[row]]), number(float(lengths[row])))


def _left_out(analysis: Analysis) -> dict[str, list[int]]:
    """Return the steps that are in no mean, by why not."""
    steps, kind = analysis.steps, analysis.regimes.kind
    unused = np.setdiff1d(np.arange(len(steps.numbers)), steps.used)
    warmup = kind[unused] == WARMUP
    rows = {"warm-up": unused[warmup], "unfinished": unused[~warmup]}
    return {why: steps.numbers[left].tolist() for why, left in rows.items() if len(left)}


def _steady(analysis: Analysis) -> report.SteadyEntry:
    regimes = analysis.regimes
    row = regimes.steady_from
    return report.SteadyEntry(
        first_step=None if row is None else int(analysis.steps.numbers[row]),
        reason=regimes.reason,
        step_time_s=number(regimes.steady_s),
    )


def _accounting(analysis: Analysis) -> dict[str, float]:
    origin = analysis.trace.run.origin
    if origin and origin.durations_only:  # what no timer covers is unknown, not idle
        return {}
    columns = np.flatnonzero(analysis.steps.stepping)
    shares = analysis.accounting.shares(analysis.steps.used, columns)
    return {kind: round(share, SHARE_DIGITS) for kind, share in shares.items()}


def phase_entries(analysis: Analysis) -> dict[str, report.PhaseEntry]:
    """Return every phase that takes any time in the used steps, in canonical order."""
    if not analysis.step_s:
        return {}
    present = analysis.used_seconds.sum(axis=(0, 1))
    entries, now_s = {}, 0.0
    for code in dict.fromkeys([*_order_in_step(analysis), *range(len(PHASES))]):
        if present[code] > 0:
            phase = PHASES[code]
            entries[phase] = replace(
                phase_entry(analysis, code),
                start_s=round(now_s, SECONDS_DIGITS),
                device_seconds=number(analysis.device_seconds.get(phase)),
                host_time=phase in analysis.by_host_clock_alone,
            )
            now_s += entries[phase].seconds
    return {phase: entries[phase] for phase in PHASES if phase in entries}


def _order_in_step(analysis: Analysis) -> list[int]:
    """Phase codes by the middle of their time, in each rank's steps that have most phases. Not by
    their first start: TRL's training step opens just before the rollout that it calls."""
    moments, total = np.zeros(COLUMNS), np.zeros(COLUMNS)
    for at, track in enumerate(analysis.tracks):
        windows, _ = analysis.steps.windows(at, used=True)
        shared = overlaps(track.pieces, windows)
        phase = track.phase[shared.left]
        has = np.zeros((len(windows), COLUMNS), dtype=bool)
        has[shared.right, phase] = True
        phases = has.sum(axis=1)
        weight_ns = np.where(phases[shared.right] == phases.max(initial=0), shared.length_ns, 0)
        middle_ns = (shared.start_ns + shared.end_ns) // 2 - windows.start_ns[shared.right]
        np.add.at(moments, phase, weight_ns.astype(float) * middle_ns)
        np.add.at(total, phase, weight_ns)
    present = np.flatnonzero(total)
    order: list[int] = present[
        np.argsort(moments[present] / total[present], kind="stable")
    ].tolist()
    return order


def phase_entry(analysis: Analysis, code: int) -> report.PhaseEntry:
    """Return one column of the tables per step: means over ranks, then over used steps."""
    per_step = analysis.used_seconds[:, :, code].mean(axis=1)
    seconds = float(per_step.mean())
    waited, transferred, idle = (
        float(table[:, :, code].mean())
        for table in (analysis.used_waited, analysis.used_transferred, analysis.used_idled)
    )
    low, high = np.percentile(per_step, [10, 90])
    return report.PhaseEntry(
        seconds=round(seconds, 6),
        share=round(seconds / (analysis.step_s or 1.0), SHARE_DIGITS),
        work_seconds=round(max(0.0, seconds - waited - transferred - idle), 6),
        wait_seconds=round(waited, 6),
        transfer_seconds=round(transferred, 6),
        idle_seconds=round(idle, 6),
        p10_s=round(float(low), 6),
        p90_s=round(float(high), 6),
        steps=int((per_step > 0).sum()),
    )


def _tokens_per_s(analysis: Analysis) -> float | None:
    """Completion tokens of all ranks per second of step time."""
    elapsed = float(analysis.step_seconds.sum())
    total = counter_sum(analysis.trace, TOKENS, analysis.used_windows)
    return total / elapsed if total is not None and elapsed else None
