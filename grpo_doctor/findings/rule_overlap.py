"""What rules say of the same run: each is asked once, and no illness is told twice.

A rule defers where another one names the same cost with the same fix, or a better one. Of two such
rules only one may ask the other: see that the one that is asked never defers back.
"""

from __future__ import annotations

from grpo_doctor.findings.rule import Finding, NotApplicable, NotRun, Outcome, RuleError
from grpo_doctor.findings.view import RuleFile, RunView


def ask(rule: RuleFile, view: RunView) -> Outcome:
    """What the rule answers, or why it could not; never raises."""
    known = view.answers
    if rule.RULE.id not in known:
        known[rule.RULE.id] = _ask(rule, view)
    return known[rule.RULE.id]


def _ask(rule: RuleFile, view: RunView) -> Outcome:
    ranks = max(len(view.analysis.ranks), view.trace.run.world_size)
    if 0 < ranks < rule.RULE.min_ranks:
        return NotApplicable(f"the run has {ranks} rank{'s' * (ranks != 1)}")
    try:
        missing = [s.text for s in rule.RULE.needs if not s.present(view.analysis)]
        if missing:
            return NotRun(tuple(missing))
        return rule.check(view.narrowed(rule.RULE))
    except Exception as error:  # noqa: BLE001 - a rule's defect must not cost the report
        return RuleError(type(error).__name__, str(error))


def finding_of(rule: RuleFile, view: RunView) -> Finding | None:
    """What another rule finds; None where it can't judge this run or finds nothing.

    An error in the other rule is its own to report: here it finds nothing.
    """
    answer = ask(rule, view)
    return answer if isinstance(answer, Finding) else None


def fixed_alike(finding: Finding | None, knob: str) -> bool:
    """Whether a finding already advises a setting of this knob."""
    return finding is not None and any(fix.knob == knob for fix in finding.fixes)
