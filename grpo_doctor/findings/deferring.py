"""What another rule says of the same run, so that no illness is told twice.

A rule defers where another one names the same cost with the same fix, or a better one. Of two such
rules only one may ask the other: see that the one that is asked never defers back.
"""

from __future__ import annotations

from grpo_doctor.findings.judging import ask
from grpo_doctor.findings.rule import Finding
from grpo_doctor.findings.view import RuleFile, RunView


def finding_of(rule: RuleFile, view: RunView) -> Finding | None:
    """What another rule finds; None where it can't judge this run or finds nothing.

    An error in the other rule is its own to report: here it finds nothing.
    """
    answer = ask(rule, view)
    return answer if isinstance(answer, Finding) else None


def fixed_alike(finding: Finding | None, knob: str) -> bool:
    """Whether a finding already advises a setting of this knob."""
    return finding is not None and any(fix.knob == knob for fix in finding.fixes)
