"""Read the findings, their fixes, and the rules that did not fire."""

from __future__ import annotations

import re
from dataclasses import replace

from grpo_doctor_reports import formatting
from grpo_doctor_reports.finding_model import Check, Cost, Evidence, Finding, Fix, Predicted
from grpo_doctor_reports.reader import Node
from grpo_doctor_reports.run_facts import any_value
from grpo_doctor_reports.text_safety import PROSE_LIMIT

_RULE_ID = re.compile(r"[A-Z]{2}\d{3,6}")


def read_findings(nodes: list[Node]) -> list[Finding]:
    """Return the findings in the document's order, each with an anchor of its own."""
    anchors: set[str] = set()
    findings = []
    for at, node in enumerate(nodes, start=1):
        anchor = _anchor(node.text("id"), at, anchors)
        anchors.add(anchor)
        findings.append(_read_finding(node, anchor))
    return findings


def _anchor(rule_id: str, position: int, taken: set[str]) -> str:
    plain = rule_id if _RULE_ID.fullmatch(rule_id) else "finding"
    return plain if plain != "finding" and plain not in taken else f"{plain}-{position}"


def _read_finding(node: Node, anchor: str) -> Finding:
    return Finding(
        anchor=anchor,
        id=node.text("id"),
        slug=node.text("slug"),
        title=node.text("title"),
        family=node.text("family"),
        severity=node.text("severity"),
        confidence=node.number("confidence"),
        cost=_read_cost(node.node("cost")),
        phases=node.texts("phases"),
        ranks=node.integers("ranks"),
        steps=node.integers("steps"),
        evidence=[_read_evidence(item) for item in node.nodes("evidence")],
        cause=node.block("cause"),
        fixes=[_read_fix(item) for item in node.nodes("fixes")],
    )


def _read_cost(node: Node) -> Cost:
    return Cost(
        share=node.number("share"),
        seconds_per_step=node.number("seconds_per_step"),
        gpu_hours=node.number("gpu_hours"),
        gpu_hours_per_day=node.number("gpu_hours_per_day"),
        money=node.number("money"),
        money_per_day=node.number("money_per_day"),
        currency=node.text("currency"),
    )


def _read_evidence(node: Node) -> Evidence:
    value, unit = node.members.get("value"), node.text("unit")
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    measured = node.number("value") if is_number else None
    if measured is not None:
        shown = formatting.quantity(measured, unit)
    else:
        shown = f"{any_value(value)} {unit}".strip()
    return Evidence(text=node.text("text", PROSE_LIMIT), shown=shown, source=node.text("source"))


def _read_fix(node: Node) -> Fix:
    predicted = node.node("predicted")
    return Fix(
        knob=node.text("knob"),
        before=any_value(node.members.get("from")),
        after=any_value(node.members.get("to")),
        spelling=node.block("spelling"),
        predicted=_read_predicted(predicted) if predicted else None,
        safety=node.text("safety"),
        risk=node.text("risk", PROSE_LIMIT),
    )


def _read_predicted(node: Node) -> Predicted:
    return Predicted(
        low=node.number("low"),
        mid=node.number("mid"),
        high=node.number("high"),
        unit=node.text("unit"),
        basis=node.text("basis", PROSE_LIMIT),
    )


def read_checks(nodes: list[Node], note: str) -> list[Check]:
    """Return the rules of one outcome; `note` is the member that says why."""
    return [
        Check(
            id=node.text("id"),
            slug=node.text("slug"),
            title=node.text("title"),
            note=node.text(note, PROSE_LIMIT),
            signals=node.texts("signals", PROSE_LIMIT),
            left_out=node.flag("left_out"),
        )
        for node in nodes
    ]


def read_failed(nodes: list[Node]) -> list[Check]:
    """Return the rules that failed; their note is the exception."""
    return [
        replace(check, note=f"{node.text('exception')}: {check.note}".removesuffix(": "))
        for check, node in zip(read_checks(nodes, "message"), nodes, strict=True)
    ]
