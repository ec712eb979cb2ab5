"""What a finding wastes: of a step, in GPU-hours, and in money if a price is given."""

from __future__ import annotations

from dataclasses import dataclass

from grpo_doctor.analysis import Analysis
from grpo_doctor.document.numbers import SHARE_DIGITS, number, significant
from grpo_doctor.findings.rule import Finding
from grpo_doctor_reports.schema.findings import CostEntry

SECONDS_PER_HOUR = 3600.0
HOURS_PER_DAY = 24.0


@dataclass(frozen=True, slots=True)
class Price:
    """What one GPU costs in an hour, in a currency that is only a word to us."""

    per_gpu_hour: float
    currency: str = "USD"


# Without them there is no step: what they take is no loss, only what of it can go is.
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


def cost_entry(analysis: Analysis, finding: Finding, price: Price | None) -> CostEntry:
    """A finding's share of the step time as seconds, GPU-hours of this recording and of a day.

    GPUs are those that were sampled and visible to the job, so a job on CPUs has no GPU-hours.
    """
    share = finding.cost
    gpus = sum(gpu.visible for gpu in analysis.trace.gpus)
    step_s = analysis.step_s or 0.0
    hours = float(analysis.step_seconds.sum()) / SECONDS_PER_HOUR
    spent = share * gpus * hours if gpus else None
    daily = share * gpus * HOURS_PER_DAY if gpus else None
    return CostEntry(
        share=round(share, SHARE_DIGITS),
        seconds_per_step=number(share * step_s),
        gpu_hours=significant(spent),
        gpu_hours_per_day=significant(daily),
        money=_money(spent, price),
        money_per_day=_money(daily, price),
        currency=price.currency if price else "",
        at_most=finding.is_bound or needed_share(analysis, finding) > 0,
    )


def _money(gpu_hours: float | None, price: Price | None) -> float | None:
    if gpu_hours is None or price is None:
        return None
    return significant(gpu_hours * price.per_gpu_hour)
