"""Healthy runs with noise: no rule about learning or checkpoints may say anything."""

from __future__ import annotations

import pytest

from grpo_doctor.findings import RunView, rules, run_rules
from tests.unit.findings.learners import learner

LEARNING = [rule for rule in rules.ALL if 50 <= int(rule.RULE.id[2:]) < 80]


@pytest.mark.parametrize("steps", [1, 5, 12, 30, 80, 400, 2000])
def test_noise_is_no_finding(steps: int) -> None:
    for seed in range(12):
        results = run_rules(RunView.of(learner(steps=steps, seed=seed).build()), LEARNING)
        assert results.findings == (), (steps, seed, results.findings)
        assert results.errors == ()
