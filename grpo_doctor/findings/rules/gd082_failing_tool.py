"""Calls of a tool or an environment fail."""

from __future__ import annotations

from grpo_doctor.findings.rule import Answer, Evidence, Finding, NotApplicable, Passed
from grpo_doctor.findings.shared import Severity, graded, percent
from grpo_doctor.findings.view import RunView, rule
from grpo_doctor_reports.schema.trajectories import ToolEntry

RULE = rule("rollout")
# A few calls fail in any run: the model's arguments are wrong.
MIN_CALLS, MIN_FAILED = 20, 5
GRADES: dict[Severity, float] = {"high": 0.50, "medium": 0.20, "low": 0.05}
# verl's calls of tools that the model made up: a matter of learning, not of an environment.
_MADE_UP = "unknown name"


def check(view: RunView) -> Answer:
    """Look for the tool with the largest share of calls that failed or never ended."""
    found = view.trace.trajectories
    if found is None or not found.tools:
        return NotApplicable("no trajectory that calls tools was recorded")
    judged = [each for each in found.tools if each.calls + each.open >= MIN_CALLS]
    judged = [each for each in judged if each.name != _MADE_UP]
    worst = max(judged, key=_failed, default=None)
    if worst is None:
        return Passed("no tool was called often enough to judge")
    share, bad = _failed(worst), worst.errors + worst.time_outs + worst.open
    severity = graded(share, GRADES)
    if severity is None or bad < MIN_FAILED:
        return Passed(f"{percent(share, 1)} of the calls of {worst.name} failed")
    late = worst.time_outs + worst.open > worst.errors
    source = f"{worst.calls + worst.open} calls"
    return Finding(
        severity=severity,
        confidence=0.9,
        phases=("rollout",),
        evidence=(
            Evidence("calls that failed", 100 * share, "%", source),
            Evidence("errors", worst.errors or None, "", source),
            Evidence("time-outs", worst.time_outs or None, "", source),
            Evidence("calls that never ended", worst.open or None, "", source),
            Evidence("time in failed calls, all trajectories", worst.failed_seconds, "s", source),
        ),
        cause=f"{bad} of {worst.calls + worst.open} calls of {worst.name} "
        + ("ran into a time limit or never ended." if late else "raised an error.")
        + " The model is trained on what it did with the error message.",
        fixes=(
            view.advice(
                f"run {worst.name} by itself with the arguments of a call that failed"
                + ("; give it more workers, or a longer time limit" if late else ""),
                "what trajectories are worth whose tools work was not measured",
                safety="needs-code",
            ),
        ),
        headline=f"{percent(share)} of the calls of {worst.name} fail",
    )


def _failed(tool: ToolEntry) -> float:
    return (tool.errors + tool.time_outs + tool.open) / max(1, tool.calls + tool.open)
