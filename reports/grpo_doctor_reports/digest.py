"""The report in few words: what page, terminal and Markdown say on their first screen.

Only wording and grouping of what the document holds; nothing is judged here.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from msgspec.structs import asdict

from grpo_doctor_reports import formatting
from grpo_doctor_reports.palette import UNATTRIBUTED, order_of
from grpo_doctor_reports.schema.compare import Side
from grpo_doctor_reports.schema.findings import (
    CostEntry,
    Evidence,
    FindingEntry,
    FixEntry,
    NextStepEntry,
    PredictedEntry,
    RuleErrorEntry,
)
from grpo_doctor_reports.schema.part import Name
from grpo_doctor_reports.schema.report import HangEntry, PhaseEntry, ReportDocument, RunEntry
from grpo_doctor_reports.severity import SEVERITIES, severity_class

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


class Bar(PhaseEntry, frozen=True):
    """A phase of the mean step as it is drawn; `fraction` is its part of the step."""

    phase: Name = ""
    fraction: float = 0.0


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


def verdict(report: ReportDocument) -> str:
    """Return the verdict, or a sentence about the steps where the document has none."""
    if report.summary.verdict:
        return report.summary.verdict
    if report.summary.steps == 0:
        return "No complete step was recorded."
    return f"{formatting.count(report.summary.steps, 'step')} recorded; no verdict was given."


def deadly_hang(report: ReportDocument) -> HangEntry | None:
    """Return the watchdog's last verdict on a run that then was ended, None where none ended it."""
    if report.run.exit.state not in _DIED:
        return None
    stuck = [hang for hang in report.hangs if hang.state in ("stuck", "dead") and hang.headline]
    return stuck[-1] if stuck else None


def step_bar(report: ReportDocument) -> list[Bar]:
    """Return the phases of a step in their order, whose fractions add up to at most 1, and last
    what no phase covers; none where no phase was recorded."""
    summary = report.summary
    names = sorted(summary.phases, key=order_of)
    phases = {name: summary.phases[name] for name in names if summary.phases[name].seconds > 0}
    uncovered = summary.unattributed
    if uncovered and uncovered.seconds > 0 and phases:
        phases.setdefault(UNATTRIBUTED, uncovered)
    step_s = max(sum(phase.seconds for phase in phases.values()), summary.step_time_s or 0.0)
    return [_bar(name, phase, phase.seconds / step_s) for name, phase in phases.items()]


def _bar(name: str, phase: PhaseEntry, fraction: float) -> Bar:
    """What is drawn of a phase: its kinds of time add up to it, and what no kind names is work."""
    work = phase.seconds
    kinds = {}
    for kind in ("wait_seconds", "transfer_seconds", "idle_seconds"):
        kinds[kind] = min(work, max(0.0, getattr(phase, kind)))
        work -= kinds[kind]
    bounded = {"work_seconds": work, **kinds, "start_s": max(0.0, phase.start_s)}
    return Bar(**{**asdict(phase), **bounded, "phase": name, "fraction": fraction})


def wait_words(parts: list[Bar]) -> str:
    """Return what the hatched pieces of the bar are; empty where there is none."""
    if any(part.idle_seconds > 0 for part in parts):
        return "wait or idle"
    return "wait for other ranks" if any(part.wait_seconds > 0 for part in parts) else ""


def bar_sentence(parts: list[Bar]) -> str:
    """Return the step bar in words, largest part first."""
    if not parts:
        return "No phases were timed, so no step can be broken down."
    largest = sorted(parts, key=lambda part: -part.seconds)
    return "; ".join(
        f"{part.phase} {formatting.seconds(part.seconds)} ({formatting.share(part.fraction)})"
        for part in largest
    )


def losses(report: ReportDocument) -> list[str]:
    """Return one sentence per thing that the recording lost."""
    loss = report.run.loss
    lines = []
    if loss.missing_ranks:
        noun = "Rank" if len(loss.missing_ranks) == 1 else "Ranks"
        lines.append(f"{noun} {formatting.int_ranges(loss.missing_ranks)} left no recording.")
    if loss.dropped_events:
        lines.append(f"{formatting.count(loss.dropped_events, 'event')} dropped while recording.")
    if loss.truncated:
        lines.append("The recording is truncated: everything after the cut is unknown.")
    return lines + [note for note in loss.notes if note]


def stalls(report: ReportDocument) -> list[str]:
    """Return who was still inside what when the recording ended, longest first.

    Of a run that goes on the first line says where its ranks are, and there is nothing wrong in it.
    """
    if report.run.exit.state == "running":
        return []
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


def main_fix(finding: FindingEntry) -> FixEntry | None:
    """Return the fix to show first: the first with a prediction, else the first; None where only
    a next step has one."""
    with_gain = [fix for fix in finding.fixes if gain(fix.predicted)]
    if not with_gain and any(gain(step.predicted) for step in finding.next_steps):
        return None
    return next(iter(with_gain or finding.fixes), None)


def main_step(finding: FindingEntry) -> NextStepEntry | None:
    """Return the advice to show where there is no fix: as of fixes."""
    with_gain = [step for step in finding.next_steps if gain(step.predicted)]
    return next(iter(with_gain or finding.next_steps), None)


def main_gain(finding: FindingEntry) -> Gain | None:
    """Return what the fix to show first would bring, else what curing the cause would."""
    remedy = main_fix(finding) or main_step(finding)
    return gain(remedy.predicted) if remedy else None


def cost_beside_gain(finding: FindingEntry) -> str:
    """Return what a finding costs; empty where the gain next to it is the same."""
    words = cost_words(finding.cost)
    remedy = main_fix(finding) or main_step(finding)
    gained = remedy.predicted.mid if remedy and remedy.predicted else None
    share = finding.cost.share or 0.0
    if gained is not None and -gained >= _SAME * 100 * share:
        words = words[1:][-1:]
    return f"costs {', '.join(dict.fromkeys([*words[:1], *words[-1:]]))}" if words else ""


def beyond_cost(finding: FindingEntry, predicted: PredictedEntry | None) -> str:
    """Return why a fix gains more than its finding costs: a step is work and waits for it."""
    gained = -(predicted.mid or 0.0) if predicted else 0.0
    cost = 100 * (finding.cost.share or 0.0)
    return "exceeds the cost, because other ranks also wait less" if gained > cost + 1 > 1 else ""


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
    """Return what to type; the change of the setting where that is not known."""
    return fix.spelling or knob_change(fix)


def pasted(fix: FixEntry) -> Pasted:
    """Return what the Copy button yields: of ``for `swift rollout`: --x 1`` the flag alone."""
    return Pasted(fix.where, fix.typed if fix.where and fix.typed else fix_line(fix))


def certainty(confidence: float) -> str:
    """Return a rule's own estimate in words: no table says how often such a number was right."""
    return "proven" if confidence >= _PROVEN else "likely" if confidence >= _LIKELY else "possible"


def knob_change(fix: FixEntry) -> str:
    """Return `setting: from → to`, as much of it as is known."""
    change = " → ".join(filter(None, map(formatting.any_value, (fix.before, fix.after))))
    return ": ".join(filter(None, (fix.knob, change)))


def safety_words(safety: str) -> str:
    """Return what a fix may change, in words."""
    return _SAFETY_WORDS.get(safety, safety)


_OUTLIER = 1.2  # times p90: a longer step is named next to it
_NOTHING = (formatting.NOTHING, "0")


@dataclass(frozen=True, slots=True)
class KeyNumber:
    """One of the headline numbers; `detail` is the small print under it."""

    label: str
    value: str
    detail: str


def key_numbers(report: ReportDocument) -> list[KeyNumber]:
    """Return the headline numbers, in the order in which they are read."""
    summary, run = report.summary, report.run
    numbers = [
        KeyNumber("Step time", formatting.seconds(summary.step_time_s), _spread(report)),
        _tokens(report),
        KeyNumber("GPU busy", formatting.percent(summary.gpu_busy_pct), _gpu_truly(report)),
        _utilization(report),
        _steps(report),
        KeyNumber("Ranks", formatting.number(_ranks(run) or None), _hosts(run)),
        KeyNumber("Exit", run.exit.state, _exit_detail(run)),
    ]
    return [number for number in numbers if number.value not in _NOTHING]


def key_numbers_line(report: ReportDocument) -> str:
    """Return the headline numbers on one line: `Step time 4 s · Steps 12 (1 warm-up)`."""
    return " · ".join(
        f"{n.label} {n.value}" + (f" ({n.detail})" if n.detail else "") for n in key_numbers(report)
    )


def setup_parts(report: ReportDocument) -> list[str]:
    """Return what was trained, on what, and how it was spread: each where it is known."""
    run = report.run
    framework = run.framework if run.framework != "unknown" else ""
    if framework == "bundled":
        framework = "bundled trainer"
    version = f" {run.framework_version}" if framework and run.framework_version else ""
    return [
        part for part in (run.model, gpus_words(run), run.parallelism, framework + version) if part
    ]


def gpus_words(run: RunEntry) -> str:
    """Return `8 × NVIDIA H100 on 2 hosts`; without GPUs, how many ranks ran on CPUs."""  # noqa: RUF002
    hosts = f" on {formatting.count(len(run.hosts), 'host')}" if len(run.hosts) > 1 else ""
    if not run.gpus:
        without = " without a GPU" if run.hosts else ""  # a log does not say
        return f"{formatting.count(_ranks(run), 'rank')}{without}{hosts}" if _ranks(run) else ""
    names = {gpu.name for gpu in run.gpus}
    kind = names.pop() if len(names) == 1 else "GPUs of several kinds"
    return f"{len(run.gpus)} × {kind}{hosts}"  # noqa: RUF001 (a multiplication sign)


def _utilization(report: ReportDocument) -> KeyNumber:
    """Model FLOPs of the whole step, and of its training phase."""
    used = report.summary.utilization
    train = f"in train {formatting.percent(used.train_pct)}" if used.train_pct is not None else ""
    padding = "padding counted" if used.padding_counted else ""
    detail = ", ".join(filter(None, (train, padding)))
    return KeyNumber("MFU", formatting.percent(used.step_pct), detail)


def _tokens(report: ReportDocument) -> KeyNumber:
    total, per_gpu = report.summary.tokens_per_s, report.summary.tokens_per_s_per_gpu
    if per_gpu is None:
        return KeyNumber("Tokens/s", formatting.compact(total), "completion tokens")
    detail = "" if total is None else f"{formatting.compact(total)} in total"
    return KeyNumber("Tokens/s/GPU", formatting.compact(per_gpu), detail)


def _spread(report: ReportDocument) -> str:
    summary = report.summary
    low, high, step_s = summary.step_time_p10_s, summary.step_time_p90_s, summary.step_time_s
    if low is None or high is None:
        return ""
    spread = f"p10{formatting.NOTHING}p90 {formatting.seconds(low)} to {formatting.seconds(high)}"
    longest, outside = summary.longest_step, step_s is not None and not low <= step_s <= high
    if longest.seconds is None or not (outside or longest.seconds > _OUTLIER * high):
        return spread
    return f"{spread}; step {longest.number} took {formatting.seconds(longest.seconds)}"


def _gpu_truly(report: ReportDocument) -> str:
    summary = report.summary
    if summary.gpu_truly_busy_pct is None:
        return ""
    by = f" by {summary.gpu_busy_by.replace('_', ' ')}" if summary.gpu_busy_by else " effective"
    return f"{formatting.percent(summary.gpu_truly_busy_pct)}{by}"


def _steps(report: ReportDocument) -> KeyNumber:
    """How many steps the means are over; of a log that has one row for several, how many rows."""
    summary, numbers = report.summary, report.views.step_buckets
    known = sum(numbers.steps)
    if known > 1 and not report.run.hosts and numbers.last[-1] - numbers.first[0] > known:
        up_to = f"of the log, up to step {numbers.last[-1]:,}"
        return KeyNumber("Rows", formatting.number(summary.steps), up_to)
    parts = []
    if summary.steps_total > summary.steps:
        parts.append(f"of {summary.steps_total:,} recorded")
    if summary.warmup_steps:
        parts.append(f"{summary.warmup_steps:,} warm-up")
    return KeyNumber("Steps", formatting.number(summary.steps), ", ".join(parts))


def _ranks(run: RunEntry) -> int:
    """How many there were; 0 where a log does not say."""
    return run.world_size or len(run.ranks)


def _hosts(run: RunEntry) -> str:
    return f"on {formatting.count(len(run.hosts), 'host')}" if run.hosts else ""


def _exit_detail(run: RunEntry) -> str:
    end = run.exit
    parts = [end.signal] if end.signal else []
    if end.code is not None and (end.code != 0 or end.state != "finished"):
        parts.append(f"code {end.code}")
    if run.duration_s is not None:
        parts.append(f"after {formatting.seconds(run.duration_s)}")
    return " ".join(parts)


_CURRENCIES = {"USD": "$", "EUR": "€", "GBP": "£"}


def cost_words(cost: CostEntry) -> list[str]:
    """Return what is known: seconds and share of a step, GPU-hours, money; largest unit last."""
    words = []
    if cost.seconds_per_step and cost.share:
        up_to = "up to " if cost.at_most else ""
        share = formatting.share(cost.share)
        words.append(f"{up_to}{formatting.seconds(cost.seconds_per_step)} per step ({share})")
    elif cost.share:
        words.append(f"{formatting.share(cost.share)} of step time")
    if cost.gpu_hours_per_day:
        words.append(f"{_hours(cost.gpu_hours_per_day)} per day")
    elif cost.gpu_hours:
        words.append(_hours(cost.gpu_hours))
    if cost.money_per_day:
        words.append(f"{money(cost.money_per_day, cost.currency)} per day")
    return words


def money(amount: float, currency: str) -> str:
    """Return an amount with its currency: `$12.30`, `1,204 CHF`."""
    shown = f"{amount:,.0f}" if abs(amount) >= 100 else f"{amount:,.2f}"
    sign = _CURRENCIES.get(currency, currency if len(currency) == 1 else "")
    return f"{sign}{shown}" if sign else f"{shown} {currency}".strip()


def _hours(hours: float | None) -> str:
    return f"{formatting.number(hours)} GPU-hours"


def framework_words(run: RunEntry | Side) -> str:
    """Return `ms-swift 4.6.0`; empty where no known framework was seen."""
    known = run.framework if run.framework != "unknown" else ""
    return f"{known} {run.framework_version or ''}".strip() if known else ""


def setting_pairs(members: Mapping[str, object]) -> list[tuple[str, str]]:
    """Return names and values as text, by name."""
    return sorted((name, formatting.any_value(value)) for name, value in members.items())


_RULE_ID = re.compile(r"[A-Z]{2}\d{3,6}")


def numbered(findings: list[FindingEntry]) -> list[tuple[str, FindingEntry]]:
    """Return the findings with an anchor each: unique in the page, safe as an HTML id."""
    anchors: list[str] = []
    for position, finding in enumerate(findings, start=1):
        plain = finding.id if _RULE_ID.fullmatch(finding.id) else "finding"
        is_free = plain != "finding" and plain not in anchors
        anchors.append(plain if is_free else f"{plain}-{position}")
    return list(zip(anchors, findings, strict=True))


def measured(entry: Evidence) -> str:
    """Return the value of a piece of evidence with its unit, for people."""
    value = formatting.finite(entry.value)
    if value is not None:
        return formatting.quantity(value, entry.unit)
    return f"{formatting.any_value(entry.value)} {entry.unit}".strip()


_TITLES: Final = {
    "offload": "Offload",
    "rollout": "Rollout",
    "sync": "Weight sync",
    "data": "Data",
    "reward": "Reward",
    "training": "Training",
    "system": "System",
    "learning": "Learning",
    "visibility": "Visibility",
}


def error_words(error: RuleErrorEntry) -> str:
    """Return how a rule failed."""
    return ": ".join(filter(None, (error.exception, error.message)))


def families(
    findings: list[tuple[str, FindingEntry]],
) -> dict[str, list[tuple[str, FindingEntry]]]:
    """Return the findings by what they are about, in their order, each with its anchor."""
    groups: dict[str, list[tuple[str, FindingEntry]]] = {}
    for anchor, finding in findings:
        groups.setdefault(_TITLES.get(finding.family, "Other"), []).append((anchor, finding))
    return groups


def severities(findings: list[FindingEntry]) -> list[tuple[str, int]]:
    """Return the severities that occur, most severe first, and how often."""
    occurring = [severity_class(finding.severity) for finding in findings]
    return [(severity, count) for severity in SEVERITIES if (count := occurring.count(severity))]
