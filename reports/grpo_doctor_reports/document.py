"""Read the report document into the model, or say which part of it cannot be read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from grpo_doctor_reports import formatting
from grpo_doctor_reports.errors import DocumentError
from grpo_doctor_reports.model import (
    Check,
    Checks,
    Evidence,
    Finding,
    Fix,
    PhaseTime,
    Predicted,
    Report,
    Summary,
)
from grpo_doctor_reports.palette import order_of
from grpo_doctor_reports.reader import Node
from grpo_doctor_reports.run_facts import any_value, read_run
from grpo_doctor_reports.text_safety import PROSE_LIMIT
from grpo_doctor_reports.views import read_curves, read_heatmap, read_timeline, read_waterfall

SCHEMA_VERSION: Final = 1

_RULE_ID = re.compile(r"[A-Z]{2}\d{3,6}")


def read_document(document: Mapping[str, Any]) -> Report:
    """Return the document as a Report.

    Raises:
        DocumentError: the schema is missing or not 1, or a part has the wrong type.
    """
    _check_schema(document)
    root = Node(document)
    tool, views = root.node("tool"), root.node("views")
    return Report(
        tool=tool.text("name") or "grpo-doctor",
        version=tool.text("version"),
        run=read_run(root.node("run")),
        summary=_read_summary(root.node("summary")),
        findings=_read_findings(root.nodes("findings")),
        checks=Checks(
            passed=_read_checks(root.nodes("passed"), "note"),
            not_run=_read_checks(root.nodes("not_run"), "missing"),
            not_applicable=_read_checks(root.nodes("not_applicable"), "reason"),
        ),
        waterfall=read_waterfall(views.nodes("waterfall")),
        heatmap=read_heatmap(views.node("heatmap")),
        timeline=read_timeline(views.node("timeline")),
        curves=read_curves(views.node("metrics")),
    )


def _check_schema(document: Mapping[str, Any]) -> None:
    if not isinstance(document, Mapping):
        raise DocumentError(
            "The report document is not a JSON object. Write it with `grpo-doctor report --json`."
        )
    schema = document.get("schema")
    if isinstance(schema, int) and not isinstance(schema, bool):
        if schema == SCHEMA_VERSION:
            return
        advice = (
            "Upgrade grpo-doctor to draw it."
            if schema > SCHEMA_VERSION
            else "Write it again from the trace with `grpo-doctor report --json`."
        )
        raise DocumentError(
            f"The report document has schema {schema}; this grpo-doctor draws schema "
            f"{SCHEMA_VERSION}. {advice}"
        )
    raise DocumentError(
        "The report document has no schema number, so it is not one of grpo-doctor's. "
        "Write it with `grpo-doctor report --json`."
    )


def _read_summary(node: Node) -> Summary:
    phases = node.node("phases")
    read = [_read_phase(name, phases.node(key)) for key, name in phases.named()]
    return Summary(
        verdict=node.text("verdict", PROSE_LIMIT),
        step_time_s=node.number("step_time_s"),
        p10_s=node.number("step_time_p10_s"),
        p90_s=node.number("step_time_p90_s"),
        steps=node.integer("steps"),
        steps_total=node.integer("steps_total"),
        warmup_steps=node.integer("warmup_steps"),
        phases=sorted(read, key=lambda phase: order_of(phase.phase)),
        unattributed_share=node.number("unattributed_share"),
        unattributed_s=node.number("unattributed_seconds"),
        gpu_busy_pct=node.number("gpu_busy_pct"),
        tokens_per_s=node.number("tokens_per_s"),
    )


def _read_phase(name: str, node: Node) -> PhaseTime:
    total = max(0.0, node.number("seconds") or 0.0)
    wait = min(total, max(0.0, node.number("wait_seconds") or 0.0))
    work = node.number("work_seconds")
    return PhaseTime(
        phase=name,
        seconds=total,
        share=node.number("share"),
        work_s=total - wait if work is None else max(0.0, work),
        wait_s=wait,
        p10_s=node.number("p10_s"),
        p90_s=node.number("p90_s"),
    )


def _read_findings(nodes: list[Node]) -> list[Finding]:
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
        severity=node.text("severity"),
        confidence=node.number("confidence"),
        phases=node.texts("phases"),
        ranks=node.integers("ranks"),
        evidence=[_read_evidence(item) for item in node.nodes("evidence")],
        cause=node.block("cause"),
        fixes=[_read_fix(item) for item in node.nodes("fixes")],
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


def _read_checks(nodes: list[Node], note: str) -> list[Check]:
    return [
        Check(
            id=node.text("id"),
            slug=node.text("slug"),
            title=node.text("title"),
            note=node.text(note, PROSE_LIMIT),
        )
        for node in nodes
    ]
