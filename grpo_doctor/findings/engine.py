"""Runs every rule on a run; one that fails or can't judge never stops the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from grpo_doctor.findings.priority import priority
from grpo_doctor.findings.rule import Finding, NotApplicable, NotRun, Passed, Rule, RuleError
from grpo_doctor.findings.rule_overlap import ask
from grpo_doctor.findings.rules import ALL
from grpo_doctor.findings.view import RuleFile, RunView


@dataclass(frozen=True, slots=True)
class Results:
    """Every rule is in exactly one of these, `findings` first what `priority` puts first."""

    findings: tuple[tuple[Rule, Finding], ...]
    passed: tuple[tuple[Rule, Passed], ...]
    not_run: tuple[tuple[Rule, NotRun], ...]
    not_applicable: tuple[tuple[Rule, NotApplicable], ...]
    errors: tuple[tuple[Rule, RuleError], ...] = ()


def run_rules(view: RunView, rules: Sequence[RuleFile] = ALL) -> Results:
    """Ask every rule."""
    answers = [(rule.RULE, ask(rule, view)) for rule in rules]
    findings = [(rule, a) for rule, a in answers if isinstance(a, Finding)]
    findings.sort(key=lambda found: priority(*found))
    return Results(
        findings=tuple(findings),
        passed=tuple((rule, a) for rule, a in answers if isinstance(a, Passed)),
        not_run=tuple((rule, a) for rule, a in answers if isinstance(a, NotRun)),
        not_applicable=tuple((rule, a) for rule, a in answers if isinstance(a, NotApplicable)),
        errors=tuple((rule, a) for rule, a in answers if isinstance(a, RuleError)),
    )
