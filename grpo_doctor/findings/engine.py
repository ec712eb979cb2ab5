"""Runs every rule on a run; one that fails or can't judge never stops the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from grpo_doctor.findings.rule import SEVERITIES, Finding, NotApplicable, Passed, Rule, RuleFile
from grpo_doctor.findings.rules import ALL
from grpo_doctor.findings.view import RunView


@dataclass(frozen=True, slots=True)
class NotRun:
    """A rule that could not judge: which signal it lacks, or its own error."""

    missing: str


@dataclass(frozen=True, slots=True)
class Results:
    """Every rule is in exactly one of these, `findings` with the gravest first."""

    findings: tuple[tuple[Rule, Finding], ...]
    passed: tuple[tuple[Rule, Passed], ...]
    not_run: tuple[tuple[Rule, NotRun], ...]
    not_applicable: tuple[tuple[Rule, NotApplicable], ...]


def run_rules(view: RunView, rules: Sequence[RuleFile] = ALL) -> Results:
    """Asks every rule."""
    answers = [(rule.RULE, _ask(rule, view)) for rule in rules]
    findings = [(rule, a) for rule, a in answers if isinstance(a, Finding)]
    findings.sort(key=lambda f: (SEVERITIES.index(f[1].severity), -f[1].gain, -f[1].cost, f[0].id))
    return Results(
        findings=tuple(findings),
        passed=tuple((rule, a) for rule, a in answers if isinstance(a, Passed)),
        not_run=tuple((rule, a) for rule, a in answers if isinstance(a, NotRun)),
        not_applicable=tuple((rule, a) for rule, a in answers if isinstance(a, NotApplicable)),
    )


def _ask(rule: RuleFile, view: RunView) -> Finding | Passed | NotApplicable | NotRun:
    ranks = max(len(view.analysis.ranks), view.trace.run.world_size)
    if 0 < ranks < rule.RULE.min_ranks:
        return NotApplicable(f"the run has {ranks} rank{'s' * (ranks != 1)}")
    try:
        missing = [s.text for s in rule.RULE.needs if not s.present(view.analysis)]
        if missing:
            return NotRun("; ".join(missing))
        return rule.check(view)
    except Exception as error:  # noqa: BLE001 - a rule's defect must not cost the report
        return NotRun(f"the rule itself failed, please report it: {type(error).__name__}: {error}")
