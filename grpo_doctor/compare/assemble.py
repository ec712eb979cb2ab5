"""Puts a comparison together."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec.structs import replace

import grpo_doctor
from grpo_doctor.compare import times
from grpo_doctor.compare.fixes import fix_results
from grpo_doctor.compare.metrics import PARTED, metric_changes
from grpo_doctor.compare.run import ComparedRun
from grpo_doctor.compare.settings import cautions, differences_of_jobs, obstacles, setting_changes
from grpo_doctor.phases import PHASES, UNATTRIBUTED
from grpo_doctor.trace.model import Trace
from grpo_doctor_reports import formatting
from grpo_doctor_reports.schema.compare import (
    SCHEMA,
    Change,
    ComparisonDocument,
    FindingChange,
    MetricChange,
)
from grpo_doctor_reports.schema.report import Tool

MAX_STEPS = 1000
_SMALL = 2.0  # percent


def compare(before: Trace, after: Trace) -> ComparisonDocument:
    """Compare two recordings. What could not be judged is named; the rest is given."""
    first, second = ComparedRun.of(before), ComparedRun.of(after)
    problems = obstacles(first, second)
    step_time, per_token = times.step_time(first, second), times.per_token(first, second)
    metrics = metric_changes(before, after)
    return ComparisonDocument(
        schema=SCHEMA,
        tool=Tool(name="grpo-doctor", version=grpo_doctor.__version__),
        before=first.side(),
        after=second.side(),
        verdict=_verdict(
            problems, differences_of_jobs(first, second), step_time, per_token, metrics
        ),
        comparable=not problems,
        cautions=problems + cautions(first, second),
        step_time=step_time,
        per_token=per_token,
        phases=times.phases(first, second),
        settings=[
            replace(row, before=_plain(row.before), after=_plain(row.after))
            for row in setting_changes(first, second)
        ],
        metrics=metrics,
        fixes=fix_results(first, second, step_time),
        findings=_findings(first, second),
        steps={"before": _steps(first), "after": _steps(second)},
    )


def _verdict(
    problems: Sequence[str],
    jobs: Sequence[str],
    step: Change,
    token: Change,
    metrics: Iterable[MetricChange],
) -> str:
    if problems:
        return f"These runs can't be compared: {problems[0]}."
    if step.verdict == times.UNKNOWN:
        return f"Not enough evidence: {step.note}."
    text = _step_words(step)
    if jobs:
        text = f"Different jobs: {jobs[0]}. {text}"
    if token.verdict not in (times.UNKNOWN, step.verdict):
        ratio = formatting.change_ratio(token.change_pct, token.low_pct, token.high_pct)
        per_token = f"{_signed(token.low_pct)}% to {_signed(token.high_pct)}%"
        change = "no significant difference" if token.verdict == times.SAME else token.verdict
        if ratio:
            change = f"{ratio.mid} as {'fast' if ratio.is_faster else 'long'}"
            per_token = f"{ratio.low} to {ratio.high}"
        text += f", and {change} per token ({per_token})"
    parted = [m for m in metrics if m.state == PARTED]
    if parted:
        text += f". Metrics diverge at step {parted[0].step}, first {parted[0].name}"
    return text + "."


def _step_words(step: Change) -> str:
    """Return how much faster or slower a step is: a large change as a ratio, since -59% is 2.4x."""
    interval = f"95% interval {_signed(step.low_pct)}% to {_signed(step.high_pct)}%"
    if step.verdict == times.SAME:
        return f"No significant difference in step time ({interval})"
    ratio = formatting.change_ratio(step.change_pct, step.low_pct, step.high_pct)
    if ratio is None:
        less = "less" if step.verdict == times.FASTER else "more"
        size = _signed(abs(step.change_pct or 0.0)).removeprefix("+")
        return f"AFTER takes {size}% {less} time per step ({interval})"
    is_faster = step.verdict == times.FASTER
    compared = f"is {ratio.mid} as fast" if is_faster else f"takes {ratio.mid} as long"
    return f"AFTER {compared} per step ({_signed(step.change_pct)}%, {interval})"


def _signed(percent: float | None) -> str:
    """With a digit where without one a change might read as none."""
    value = percent or 0.0
    shown = f"{value:+.1f}" if abs(value) < _SMALL else f"{value:+.0f}"
    return shown.replace("-", formatting.MINUS)


def _findings(before: ComparedRun, after: ComparedRun) -> list[FindingChange]:
    first = {rule.id: (rule, finding) for rule, finding in before.results.findings}
    second = {rule.id: (rule, finding) for rule, finding in after.results.findings}
    rows = []
    for identity in sorted({*first, *second}):
        rule, finding = second.get(identity) or first[identity]
        state = "still" if identity in first and identity in second else ""
        if not state and identity in first:
            state = "gone" if _judged(after, identity) else "not judged after"
        state = state or ("new" if _judged(before, identity) else "not judged before")
        rows.append(
            FindingChange(
                id=identity,
                title=finding.headline or rule.title,
                state=state,
                severity=finding.severity,
            )
        )
    return rows


def _judged(run: ComparedRun, identity: str) -> bool:
    """Return whether a run held what the rule needs: what could not be looked for is not gone."""
    unjudged = (*run.results.not_run, *run.results.errors)
    return identity not in {rule.id for rule, _ in unjudged}


def _steps(run: ComparedRun) -> dict[str, list[float | None]]:
    """Columns by used step: its number, its seconds, and each phase's; of many, evenly spread."""
    table, numbers = run.phase_seconds, run.analysis.steps.numbers[run.analysis.steps.used]
    rows = range(0, len(numbers), max(1, math.ceil(len(numbers) / MAX_STEPS)))
    columns: dict[str, list[float | None]] = {
        "step": [float(numbers[row]) for row in rows],
        "seconds": [round(float(run.step_seconds[row]), 6) for row in rows],
    }
    for code, phase in enumerate((*PHASES, UNATTRIBUTED)):
        if table[:, code].sum() > 0:
            columns[phase] = [round(float(table[row, code]), 6) for row in rows]
    return columns


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)
