from __future__ import annotations

from typing import Any

import pytest

from grpo_doctor_reports.digest import cost_words, money
from grpo_doctor_reports.schema.findings import CostEntry
from grpo_doctor_reports.schema.report import read_report


def cost(**members: Any) -> CostEntry:
    return read_report({"schema": 1, "findings": [{"cost": members}]}).findings[0].cost


def test_a_cost_is_said_as_far_as_it_is_known() -> None:
    assert cost_words(cost(share=0.12, seconds_per_step=4.0)) == ["4 s per step (12%)"]
    bound = cost(share=0.12, seconds_per_step=4.0, at_most=True)
    assert cost_words(bound) == ["up to 4 s per step (12%)"]
    full = cost(share=0.12, gpu_hours=0.5, gpu_hours_per_day=9.6, money=1.25, money_per_day=24.0,
                currency="EUR")  # fmt: skip
    assert cost_words(full) == ["12% of step time", "9.60 GPU-hours per day", "€24.00 per day"]


def test_what_costs_nothing_or_is_not_known_is_not_said() -> None:
    assert cost_words(cost()) == []
    assert cost_words(cost(share=0.0, money=None)) == []


@pytest.mark.parametrize(("amount", "currency", "words"), [
    (1_204.4, "USD", "$1,204"), (-1204.0, "CHF", "-1,204 CHF"), (0.5, "CHF", "0.50 CHF"),
    (3.0, "", "3.00"), (3.0, "¥", "¥3.00"), (100.0, "USD", "$100"), (99.994, "USD", "$99.99"),
    (-100.0, "USD", "$-100"), (-99.5, "USD", "$-99.50"),
])  # fmt: skip
def test_from_a_hundred_there_are_no_cents(amount: float, currency: str, words: str) -> None:
    assert money(amount, currency) == words


def test_hours_of_the_recording_are_said_where_those_of_a_day_are_not() -> None:
    assert cost_words(cost(gpu_hours=0.5)) == ["0.500 GPU-hours"]
    assert cost_words(cost(gpu_hours=0.5, gpu_hours_per_day=9.6)) == ["9.60 GPU-hours per day"]
