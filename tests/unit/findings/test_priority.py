"""Which finding is first: what ended or ruined the run, then the time that can come back."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from grpo_doctor.findings.priority import ENDED_BY_AN_ERROR, foremost, priority
from grpo_doctor.findings.rule import Finding, Fix, Rule
from grpo_doctor.whatif import Prediction


def found(
    rule_id: str, severity: Any, family: Any = "system", gain: float = 0.0, **more: Any
) -> tuple[Rule, Finding]:
    predicted = Prediction(-2 * gain, -gain, 0.0, "so") if gain else None
    fix = Fix("a", 1, 2, "--a 2", predicted, "same-math", "")
    finding = Finding(
        severity=severity, confidence=1.0, evidence=(), cause="", fixes=(fix,), **more
    )
    return Rule(rule_id, "slug", rule_id, family, ()), finding


# First to last.
ORDER = (
    found(ENDED_BY_AN_ERROR, "high"), found("GD064", "high", "learning", ruins=True),
    found("GD003", "high", cost=0.53), found("GD011", "high", gain=40.0, cost=0.42),
    found("GD004", "medium", gain=17.0, cost=0.17),
    found("GD023", "medium", cost=0.6),  # a bound that its rule itself calls medium
    found("GD040", "medium"),  # no time: it weighs as much as its severity
    found("GD044", "low", gain=3.0, cost=0.03),
    found("GD051", "high", "learning"), found("GD061", "low", "learning"), found("GD006", "info"),
)  # fmt: skip


def test_any_two_findings_stand_in_this_order() -> None:
    for (position, one), (later, other) in itertools.combinations(enumerate(ORDER), 2):
        assert priority(*one) < priority(*other), (position, later)


@pytest.mark.parametrize("severity", ["high", "medium", "low"])
def test_what_is_learned_less_never_outranks_time_unless_it_ruins_the_run(severity: Any) -> None:
    rollout = found("GD003", "info", "rollout", cost=0.53)
    assert priority(*rollout) < priority(*found("GD051", severity, "learning"))
    ruinous = found("GD059", severity, "learning", ruins=True)
    assert priority(*ruinous) < priority(*rollout)


def test_facts_to_know_alone_make_no_headline() -> None:
    fact, problem = found("GD006", "info"), found("GD044", "low", gain=3.0)
    assert foremost(()) is foremost((fact,)) is None
    assert foremost((problem, fact)) == problem
