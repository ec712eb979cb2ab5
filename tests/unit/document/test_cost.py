"""What a finding wastes, in the units people pay in."""

from __future__ import annotations

import pytest

from grpo_doctor.analysis import analyse
from grpo_doctor.document.cost import Price, cost_entry
from tests.unit.findings.example_runs import run


def test_waste_is_said_per_step_and_in_gpu_hours() -> None:
    analysis = analyse(run(ranks=4).build())
    cost = cost_entry(analysis, 0.25, None)
    assert cost.share == 0.25
    assert cost.seconds_per_step == pytest.approx(0.25 * (analysis.step_s or 0))
    assert cost.gpu_hours == pytest.approx(0.25 * 4 * analysis.step_seconds.sum() / 3600, rel=1e-3)
    assert cost.gpu_hours_per_day == 24.0
    assert (cost.money, cost.money_per_day, cost.currency) == (None, None, "")


def test_a_price_makes_it_money() -> None:
    analysis = analyse(run(ranks=4).build())
    cost = cost_entry(analysis, 0.25, Price(2.5, "EUR"))
    assert (cost.money_per_day, cost.currency) == (60.0, "EUR")


def test_without_gpus_there_are_no_gpu_hours() -> None:
    analysis = analyse(run(ranks=4, memory_gib=None).build())
    cost = cost_entry(analysis, 0.25, Price(2.5))
    assert (cost.gpu_hours, cost.gpu_hours_per_day, cost.money) == (None, None, None)
    assert cost.seconds_per_step is not None


def test_the_waste_of_these_steps_is_money_too() -> None:
    analysis = analyse(run(ranks=4).build())
    cost = cost_entry(analysis, 0.25, Price(1000.0))
    assert cost.gpu_hours is not None
    assert cost.money == pytest.approx(1000 * cost.gpu_hours, rel=1e-3)
    assert cost.currency == "USD"
    free = cost_entry(analysis, 0.25, None)
    assert (free.gpu_hours, free.money) == (cost.gpu_hours, None)
