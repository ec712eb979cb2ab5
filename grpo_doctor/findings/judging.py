"""Asks a rule about a run, once: rules that defer to it share the answer."""

from __future__ import annotations

from grpo_doctor.findings.rule import Answer, NotApplicable, NotRun
from grpo_doctor.findings.view import RuleFile, RunView


def ask(rule: RuleFile, view: RunView) -> Answer | NotRun:
    """What the rule answers, or why it could not judge; never an error."""
    known = view.answers
    if rule.RULE.id not in known:
        known[rule.RULE.id] = _ask(rule, view)
    return known[rule.RULE.id]


def _ask(rule: RuleFile, view: RunView) -> Answer | NotRun:
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
