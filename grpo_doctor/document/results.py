"""The document's findings with what they waste, and the rules that passed or could not judge."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from grpo_doctor.analysis import Analysis
from grpo_doctor.document.numbers import PERCENT_DIGITS, SHARE_DIGITS, finite, number, significant
from grpo_doctor.findings import Results
from grpo_doctor.findings.rule import Finding, Fix, Rule
from grpo_doctor_reports.schema import findings

SECONDS_PER_HOUR = 3600.0
HOURS_PER_DAY = 24.0


@dataclass(frozen=True, slots=True)
class Price:
    """What one GPU costs in an hour, in a currency that is only a word to us."""

    per_gpu_hour: float
    currency: str = "USD"


# Without them there is no step: what they take is not a loss, only what of it can go is.
_NEEDED = ("rollout", "reward", "logprob", "train", "optimizer", "sync")
_MOST_OF_IT = 0.5


def needed_share(analysis: Analysis, finding: Finding) -> float:
    """What phases that a step needs take of it, where the finding's cost is most of them and how
    much of that can go was not predicted; else 0."""
    remedy = finding.remedy
    predicted = remedy is not None and remedy.predicted is not None
    if predicted or finding.ruins or not finding.phases or not set(finding.phases) <= set(_NEEDED):
        return 0.0
    share = sum(analysis.share(phase) for phase in finding.phases)
    return share if finding.cost > _MOST_OF_IT * share else 0.0


def cost_entry(analysis: Analysis, finding: Finding, price: Price | None) -> findings.CostEntry:
    """A finding's share of the step time as seconds, GPU-hours of this recording and of a day.

    GPUs are those that were sampled and visible to the job, so a job on CPUs has no GPU-hours.
    """
    share = finding.cost
    gpus = sum(gpu.visible for gpu in analysis.trace.gpus)
    step_s = analysis.step_s or 0.0
    hours = float(analysis.step_seconds.sum()) / SECONDS_PER_HOUR
    spent = share * gpus * hours if gpus else None
    daily = share * gpus * HOURS_PER_DAY if gpus else None
    return findings.CostEntry(
        share=round(share, SHARE_DIGITS),
        seconds_per_step=number(share * step_s),
        gpu_hours=significant(spent),
        gpu_hours_per_day=significant(daily),
        money_per_day=_money(daily, price),
        currency=price.currency if price else "",
        at_most=finding.is_bound or needed_share(analysis, finding) > 0,
    )


def _money(gpu_hours: float | None, price: Price | None) -> float | None:
    if gpu_hours is None or price is None:
        return None
    return significant(gpu_hours * price.per_gpu_hour)


def entries(results: Results, analysis: Analysis, price: Price | None) -> dict[str, list[Any]]:
    """Return the document's lists of rules: findings, most severe first, and each other outcome."""
    return {
        "findings": [
            _finding(rule, finding, cost_entry(analysis, finding, price))
            for rule, finding in results.findings
        ],
        "passed": [
            findings.PassedEntry(**_rule(rule), note=found.note) for rule, found in results.passed
        ],
        "not_run": [
            findings.NotRunEntry(
                **_rule(rule), missing="; ".join(lack.missing), signals=list(lack.missing)
            )
            for rule, lack in results.not_run
        ],
        "not_applicable": [
            findings.NotApplicableEntry(
                **_rule(rule), reason=outcome.reason, left_out=outcome.left_out
            )
            for rule, outcome in results.not_applicable
        ],
        "rule_errors": [
            findings.RuleErrorEntry(**_rule(rule), exception=error.exception, message=error.message)
            for rule, error in results.errors
        ],
    }


def _rule(rule: Rule) -> dict[str, Any]:
    return {"id": rule.id, "slug": rule.slug, "title": rule.title}


def _finding(rule: Rule, finding: Finding, cost: findings.CostEntry) -> findings.FindingEntry:
    return findings.FindingEntry(
        id=rule.id,
        slug=rule.slug,
        title=finding.headline or rule.title,
        family=rule.family,
        severity=finding.severity,
        confidence=round(finding.confidence, 2),
        cost=cost,
        phases=list(finding.phases),
        ranks=list(finding.ranks),
        steps=list(finding.steps),
        evidence=[
            replace(evidence, value=significant(evidence.value))
            if isinstance(evidence.value, float)
            else evidence
            for evidence in finding.evidence
        ],
        cause=finding.cause,
        fixes=[
            findings.FixEntry(
                knob=fix.knob,
                before=finite(fix.before),
                after=finite(fix.after),
                spelling=fix.spelling,
                typed=fix.typed if fix.where else "",
                where=fix.where,
                predicted=_predicted(fix),
                safety=fix.safety,
                risk=fix.risk,
            )
            for fix in finding.to_paste
        ],
        next_steps=[
            findings.NextStepEntry(
                text=fix.spelling, predicted=_predicted(fix), safety=fix.safety, risk=fix.risk
            )
            for fix in finding.next_steps
        ],
    )


def _predicted(fix: Fix) -> findings.PredictedEntry | None:
    prediction = fix.predicted
    return (
        None
        if prediction is None
        else findings.PredictedEntry(
            low=round(prediction.low, PERCENT_DIGITS),
            mid=round(prediction.mid, PERCENT_DIGITS),
            high=round(prediction.high, PERCENT_DIGITS),
            unit="step_time_pct",
            basis=prediction.grounds,
        )
    )
