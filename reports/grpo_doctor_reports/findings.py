"""Read the findings, their fixes, and the rules that did not fire."""

from __future__ import annotations

import re

from grpo_doctor_reports import formatting
from grpo_doctor_reports.finding_model import Evidence, Finding, Fix, NextStep
from grpo_doctor_reports.run_facts import any_value
from grpo_doctor_reports.schema.findings import EvidenceEntry, FindingEntry, FixEntry

_RULE_ID = re.compile(r"[A-Z]{2}\d{3,6}")


def read_findings(entries: list[FindingEntry]) -> list[Finding]:
    """Return the findings in the document's order, each with an anchor of its own."""
    anchors: set[str] = set()
    findings = []
    for position, entry in enumerate(entries, start=1):
        anchor = _anchor(entry.id, position, anchors)
        anchors.add(anchor)
        findings.append(_read_finding(entry, anchor))
    return findings


def _anchor(rule_id: str, position: int, taken: set[str]) -> str:
    plain = rule_id if _RULE_ID.fullmatch(rule_id) else "finding"
    return plain if plain != "finding" and plain not in taken else f"{plain}-{position}"


def _read_finding(entry: FindingEntry, anchor: str) -> Finding:
    return Finding(
        anchor=anchor,
        id=entry.id,
        slug=entry.slug,
        title=entry.title,
        family=entry.family,
        severity=entry.severity,
        confidence=entry.confidence,
        cost=entry.cost,
        phases=entry.phases,
        ranks=entry.ranks,
        steps=entry.steps,
        evidence=[_read_evidence(item) for item in entry.evidence],
        cause=entry.cause,
        fixes=[_read_fix(item) for item in entry.fixes],
        next_steps=[
            NextStep(item.text, item.predicted, item.safety, item.risk) for item in entry.next_steps
        ],
    )


def _read_evidence(entry: EvidenceEntry) -> Evidence:
    value = formatting.finite(entry.value)
    if value is not None:
        shown = formatting.quantity(value, entry.unit)
    else:
        shown = f"{any_value(entry.value)} {entry.unit}".strip()
    return Evidence(text=entry.text, shown=shown, source=entry.source)


def _read_fix(entry: FixEntry) -> Fix:
    return Fix(
        knob=entry.knob or "",
        before=any_value(entry.before),
        after=any_value(entry.after),
        spelling=entry.spelling,
        predicted=entry.predicted,
        safety=entry.safety,
        risk=entry.risk,
        typed=entry.typed,
        where=entry.where,
    )
