"""Which finding comes first: headline, first card and what-if follow this one order."""

from __future__ import annotations

from grpo_doctor.findings.rule import Finding, Rule
from grpo_doctor.findings.shared import HIGH_SHARE, MEDIUM_SHARE
from grpo_doctor_reports.severity import SEVERITIES

# What ended a run comes before all that only made it slow.
ENDED_BY_AN_ERROR = "GD074"
# What a finding without a cost in time weighs; learning weighs less than any.
_WEIGHT = {"high": HIGH_SHARE, "medium": MEDIUM_SHARE, "low": 0.01, "info": 0.0}


def priority(rule: Rule, finding: Finding) -> tuple[object, ...]:
    """Return a sort key, smallest first.

    What ended or ruined the run; then what costs time, by how much of it can come back; of what
    teaches less than it could, the most severe, after all that costs more time than it.
    """
    weight = finding.recoverable
    if rule.family != "learning" and not finding.cost and not finding.gain:
        weight = _WEIGHT[finding.severity]
    only_learning = rule.family == "learning" and not (weight and finding.is_severe)
    return (
        rule.id != ENDED_BY_AN_ERROR,
        not finding.ruins,
        finding.severity == "info" and not finding.cost,
        only_learning,
        -round(weight, 4),
        -finding.cost,
        SEVERITIES.index(finding.severity),
        rule.id,
    )


def foremost(findings: tuple[tuple[Rule, Finding], ...]) -> tuple[Rule, Finding] | None:
    """Return the finding that the headline names: the first, unless all are only facts to know."""
    only_facts = all(finding.severity == "info" for _, finding in findings)
    return None if only_facts else findings[0]
