"""The report in few words: what page and terminal both say on their first screen.

Only wording and grouping of what the document holds; nothing is judged here.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from grpo_doctor_reports import formatting
from grpo_doctor_reports.costs import cost_words
from grpo_doctor_reports.finding_model import Finding
from grpo_doctor_reports.model import Report
from grpo_doctor_reports.palette import UNATTRIBUTED
from grpo_doctor_reports.run_facts import any_value
from grpo_doctor_reports.schema.findings import FixEntry, NextStepEntry, PredictedEntry
from grpo_doctor_reports.schema.report import HangEntry, PhaseEntry

TOP_FINDINGS = 3
_DIED = ("failed", "killed", "interrupted", "hung")
_STALLS_SHOWN = 4
_PROVEN, _LIKELY = 0.995, 0.7
_SAME = 0.9  # a gain of as much of a cost says the same
_STEP_TIME_UNIT = "step_time_pct"
_SAFETY_WORDS = {
    "same-math": "same math",
    "changes-numerics": "changes numerics",
    "changes-algorithm": "changes the algorithm",
    "needs-code": "needs a code change",
}


@dataclass(frozen=True, slots=True)
class BarPart:
    """One segment of the step bar; `fraction` is its part of the bar's length."""

    phase: str
    seconds: float
    work_s: float
    wait_s: float
    transfer_s: float
    idle_s: float
    fraction: float
    host_time: bool


@dataclass(frozen=True, slots=True)
class Pasted:
    """What to type, and (`where`) into which command; empty: into the job's own."""

    where: str
    text: str


@dataclass(frozen=True, slots=True)
class Gain:
    """A predicted effect: `-14%`, `step time`, `-18 to -9%`."""

    value: str
    of_what: str
    interval: str


def verdict(report: Report) -> str:
    """Return the one sentence, or what can be said where the document has none."""
    if report.summary.verdict:
        return report.summary.verdict
    if report.summary.steps == 0:
        return "No complete step was recorded."
    return f"{formatting.count(report.summary.steps, 'step')} recorded; no verdict was given."


def deadly_hang(report: Report) -> HangEntry | None:
    """Return the watchdog's last verdict on a run that then was ended, None where none ended it."""
    if report.run.exit.state not in _DIED:
        return None
    stuck = [hang for hang in report.hangs if hang.state in ("stuck", "dead") and hang.headline]
    return stuck[-1] if stuck else None


def step_bar(report: Report) -> list[BarPart]:
    """Return the parts of a step in phase order; their fractions add up to at most 1."""
    summary = report.summary
    phases = {name: phase for name, phase in summary.phases.items() if phase.seconds > 0}
    uncovered = summary.unattributed_seconds or 0.0
    if uncovered > 0 and UNATTRIBUTED not in phases:
        phases[UNATTRIBUTED] = PhaseEntry(seconds=uncovered, work_seconds=uncovered)
    step_s = max(sum(phase.seconds for phase in phases.values()), summary.step_time_s or 0.0)
    return [
        BarPart(
            name, phase.seconds, phase.work_seconds, phase.wait_seconds, phase.transfer_seconds,
            phase.idle_seconds, phase.seconds / step_s, phase.host_time,
        )
        for name, phase in phases.items()
    ]  # fmt: skip


def wait_words(parts: list[BarPart]) -> str:
    """Return what the hatched pieces of the bar are; empty where there is none."""
    if any(part.idle_s > 0 for part in parts):
        return "wait or idle"
    return "wait for other ranks" if any(part.wait_s > 0 for part in parts) else ""


def bar_sentence(parts: list[BarPart]) -> str:
    """Return the step bar in words, largest part first."""
    if not parts:
        return "No complete step was recorded, so there is no step to break down."
    largest = sorted(parts, key=lambda part: -part.seconds)
    return "; ".join(
        f"{part.phase} {formatting.seconds(part.seconds)} ({formatting.share(part.fraction)})"
        for part in largest
    )


def losses(report: Report) -> list[str]:
    """Return one sentence per thing that the recording lost."""
    loss = report.run.loss
    lines = []
    if loss.missing_ranks:
        noun = "Rank" if len(loss.missing_ranks) == 1 else "Ranks"
        lines.append(f"{noun} {formatting.int_ranges(loss.missing_ranks)} left no recording.")
    if loss.dropped_events:
        lines.append(f"{formatting.count(loss.dropped_events, 'event')} dropped while recording.")
    if loss.truncated:
        lines.append("The recording is cut off; what came after the cut is unknown.")
    return lines + [note for note in loss.notes if note]


def stalls(report: Report) -> list[str]:
    """Return who was still inside what when the recording ended, longest first."""
    groups: dict[str, list[tuple[int, float]]] = defaultdict(list)
    for rank in report.run.ranks:
        if rank.open:
            innermost = min(rank.open, key=lambda span: span.open_s or 0.0)
            groups[innermost.name].append((rank.rank, innermost.open_s or 0.0))
    ordered = sorted(groups.items(), key=lambda item: -max(age for _, age in item[1]))
    lines = [_stall(name, members) for name, members in ordered[:_STALLS_SHOWN]]
    if len(ordered) > _STALLS_SHOWN:
        lines.append(f"{len(ordered) - _STALLS_SHOWN} more open spans are listed under Run facts.")
    return lines


def _stall(name: str, members: list[tuple[int, float]]) -> str:
    ranks = formatting.int_ranges(rank for rank, _ in members)
    shortest, longest = min(age for _, age in members), max(age for _, age in members)
    span = formatting.seconds(longest)
    if formatting.seconds(shortest) != span:
        span = f"{formatting.seconds(shortest)} to {span}"
    subject = f"Rank {ranks} was" if len(members) == 1 else f"Ranks {ranks} were"
    return f"{subject} in {name or 'an unnamed span'} for {span} when the recording ended."


def main_fix(finding: Finding) -> FixEntry | None:
    """Return the fix to show first: the first with a prediction, else the first; None where only
    a next step has one."""
    with_gain = [fix for fix in finding.fixes if gain(fix.predicted)]
    if not with_gain and any(gain(step.predicted) for step in finding.next_steps):
        return None
    return next(iter(with_gain or finding.fixes), None)


def main_step(finding: Finding) -> NextStepEntry | None:
    """Return the advice to show where there is no fix: as of fixes."""
    with_gain = [step for step in finding.next_steps if gain(step.predicted)]
    return next(iter(with_gain or finding.next_steps), None)


def main_gain(finding: Finding) -> Gain | None:
    """Return what the fix to show first would bring, else what curing the cause would."""
    remedy = main_fix(finding) or main_step(finding)
    return gain(remedy.predicted) if remedy else None


def cost_beside_gain(finding: Finding) -> str:
    """Return what a finding costs, once: nothing where the gain beside it says the same."""
    words = cost_words(finding.cost)
    remedy = main_fix(finding) or main_step(finding)
    gained = remedy.predicted.mid if remedy and remedy.predicted else None
    share = finding.cost.share or 0.0
    if gained is not None and -gained >= _SAME * 100 * share:
        words = words[1:][-1:]
    return f"costs {', '.join(dict.fromkeys([*words[:1], *words[-1:]]))}" if words else ""


def beyond_cost(finding: Finding, predicted: PredictedEntry | None) -> str:
    """Return why a fix gains more than its finding costs: a step is work and waits for it."""
    gained = -(predicted.mid or 0.0) if predicted else 0.0
    cost = 100 * (finding.cost.share or 0.0)
    return "more than the cost, as other ranks wait less too" if gained > cost + 1 > 1 else ""


def gain(predicted: PredictedEntry | None) -> Gain | None:
    """Return a prediction in words, None where nothing was predicted."""
    if predicted is None or predicted.mid is None:
        return None
    is_step_time = predicted.unit in {_STEP_TIME_UNIT, ""}
    interval = ""
    if predicted.low is not None and predicted.high is not None:
        interval = f"{_change(predicted.low, predicted)} to {_change(predicted.high, predicted)}"
    return Gain(
        value=_change(predicted.mid, predicted),
        of_what="step time" if is_step_time else "",
        interval=interval,
    )


def _change(value: float, predicted: PredictedEntry) -> str:
    return formatting.quantity(value, predicted.unit or _STEP_TIME_UNIT)


def gain_sentence(predicted: PredictedEntry | None) -> str:
    """Return a prediction on one line: `step time -14% (-18% to -9%)`."""
    predicted_gain = gain(predicted)
    if predicted_gain is None:
        return "gain not predicted"
    interval = f" ({predicted_gain.interval})" if predicted_gain.interval else ""
    return f"{predicted_gain.of_what} {predicted_gain.value}{interval}".strip()


def fix_line(fix: FixEntry) -> str:
    """Return what to type; the knob's change where no spelling is known."""
    return fix.spelling or knob_change(fix)


def pasted(fix: FixEntry) -> Pasted:
    """Return what the Copy button yields: of ``for `swift rollout`: --x 1`` the flag alone."""
    return Pasted(fix.where, fix.typed if fix.where and fix.typed else fix_line(fix))


def certainty(confidence: float) -> str:
    """Return a rule's own estimate in words: no table says how often such a number was right."""
    return "proven" if confidence >= _PROVEN else "likely" if confidence >= _LIKELY else "possible"


def knob_change(fix: FixEntry) -> str:
    """Return `knob: from → to`, as much of it as is known."""
    change = " → ".join(filter(None, map(any_value, (fix.before, fix.after))))
    return ": ".join(filter(None, (fix.knob, change)))


def safety_words(safety: str) -> str:
    """Return what a fix may change, in words."""
    return _SAFETY_WORDS.get(safety, safety)
