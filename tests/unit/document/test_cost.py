"""What a finding wastes, in the units people pay in."""

from __future__ import annotations

from dataclasses import replace

import pytest

from grpo_doctor.analysis import analyse
from grpo_doctor.document.results import Price, cost_entry, needed_share
from grpo_doctor.findings.rule import Finding, Fix
from grpo_doctor.whatif import Prediction
from tests.unit.findings.example_runs import run, without_vllm

QUARTER = Finding(severity="high", confidence=1.0, evidence=(), cause="", fixes=(), cost=0.25)


def test_waste_is_said_per_step_and_in_gpu_hours() -> None:
    analysis = analyse(run(ranks=4).build())
    cost = cost_entry(analysis, QUARTER, None)
    assert cost.share == 0.25
    assert cost.seconds_per_step == pytest.approx(0.25 * (analysis.step_s or 0))
    assert cost.gpu_hours == pytest.approx(0.25 * 4 * analysis.step_seconds.sum() / 3600, rel=1e-3)
    assert cost.gpu_hours_per_day == 24.0
    assert (cost.money_per_day, cost.currency) == (None, "")


def test_a_price_makes_it_money() -> None:
    analysis = analyse(run(ranks=4).build())
    cost = cost_entry(analysis, QUARTER, Price(2.5, "EUR"))
    assert (cost.money_per_day, cost.currency) == (60.0, "EUR")


def test_without_gpus_there_are_no_gpu_hours() -> None:
    analysis = analyse(run(ranks=4, memory_gib=None).build())
    cost = cost_entry(analysis, QUARTER, Price(2.5))
    assert (cost.gpu_hours, cost.gpu_hours_per_day) == (None, None)
    assert cost.seconds_per_step is not None


def test_what_a_needed_phase_takes_is_at_most_lost_unless_a_gain_is_predicted() -> None:
    analysis = analyse(without_vllm().build())
    whole = Finding(
        severity="high", confidence=1.0, evidence=(), cause="", fixes=(), cost=0.5,
        phases=("rollout",),
    )  # fmt: skip
    assert needed_share(analysis, whole) == pytest.approx(analysis.share("rollout"))
    assert cost_entry(analysis, whole, None).at_most
    fix = Fix("a", 1, 2, "--a 2", Prediction(-60.0, -50.0, 0.0, "so"), "same-math", "")
    for lost in (
        replace(whole, fixes=(fix,)),
        replace(whole, phases=("dataload",)),
        replace(whole, phases=()),
        replace(whole, cost=0.1),
    ):
        assert not cost_entry(analysis, lost, None).at_most
