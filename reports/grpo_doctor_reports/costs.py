"""What a finding wastes, in words."""

from __future__ import annotations

from grpo_doctor_reports import formatting
from grpo_doctor_reports.schema.findings import CostEntry

_CURRENCIES = {"USD": "$", "EUR": "€", "GBP": "£"}


def cost_words(cost: CostEntry) -> list[str]:
    """Return what is known: seconds and share of a step, GPU-hours, money; largest unit last."""
    words = []
    if cost.seconds_per_step and cost.share:
        up_to = "up to " if cost.at_most else ""
        share = formatting.share(cost.share)
        words.append(f"{up_to}{formatting.seconds(cost.seconds_per_step)} a step ({share})")
    elif cost.share:
        words.append(f"{formatting.share(cost.share)} of step time")
    if cost.gpu_hours_per_day:
        words.append(f"{_hours(cost.gpu_hours_per_day)} a day")
    elif cost.gpu_hours:
        words.append(_hours(cost.gpu_hours))
    if cost.money_per_day:
        words.append(f"{money(cost.money_per_day, cost.currency)} a day")
    return words


def money(amount: float, currency: str) -> str:
    """Return an amount with its currency: `$12.30`, `1,204 CHF`."""
    shown = f"{amount:,.0f}" if abs(amount) >= 100 else f"{amount:,.2f}"
    sign = _CURRENCIES.get(currency, currency if len(currency) == 1 else "")
    return f"{sign}{shown}" if sign else f"{shown} {currency}".strip()


def _hours(hours: float | None) -> str:
    return f"{formatting.number(hours)} GPU-hours"
