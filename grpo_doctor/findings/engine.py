"""Runs every rule on a run; one that fails or can't judge never stops the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from grpo_doctor.findings.rule import Finding, NotApplicable, NotRun, Passed, Rule, RuleError
from grpo_doctor.findings.rule_overlap import ask
from grpo_doctor.findings.rules import ALL
from grpo_doctor.findings.view import RuleFile, RunView
from grpo_doctor_reports.severity import SEVERITIES

# What ended a run comes before all that only made it slow.
ENDED_BY_AN_ERROR = "GD074"


@dataclass(frozen=True, slots=True)
class Results:
    """Every rule is in exactly one of these, `findings` with the gravest first."""

    findings: tuple[tuple[Rule, Finding], ...]
    passed: tuple[tuple[Rule, Passed], ...]
    not_run: tuple[tuple[Rule, NotRun], ...]
    not_applicable: tuple[tuple[Rule, NotApplicable], ...]
    errors: tuple[tuple[Rule, RuleError], ...] = ()


def run_rules(view: RunView, rules: Sequence[RuleFile] = ALL) -> Results:
    """Asks every rule."""
    answers = [(rule.RULE, ask(rule, view)) for rule in rules]
    findings = [(rule, a) for rule, a in answers if isinstance(a, Finding)]
    findings.sort(
        key=lambda f: (
            f[0].id != ENDED_BY_AN_ERROR,
            not f[1].ruins,
            SEVERITIES.index(f[1].severity),
            -f[1].gain,
            -f[1].cost,
            f[0].id,
        )
    )
    return Results(
        findings=tuple(findings),
        passed=tuple((rule, a) for rule, a in answers if isinstance(a, Passed)),
        not_run=tuple((rule, a) for rule, a in answers if isinstance(a, NotRun)),
        not_applicable=tuple((rule, a) for rule, a in answers if isinstance(a, NotApplicable)),
        errors=tuple((rule, a) for rule, a in answers if isinstance(a, RuleError)),
    )
