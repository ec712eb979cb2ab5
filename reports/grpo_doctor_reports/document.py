"""Read the report document into the model, or say which part of it cannot be read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from grpo_doctor_reports.accounting import (
    read_accounting,
    read_collectives,
    read_kinds,
    read_paths,
    read_steps,
)
from grpo_doctor_reports.errors import DocumentError
from grpo_doctor_reports.finding_model import Checks
from grpo_doctor_reports.findings import read_checks, read_failed, read_findings
from grpo_doctor_reports.hang_pages import read_hang_pages
from grpo_doctor_reports.model import PhaseTime, Report, Summary
from grpo_doctor_reports.palette import order_of
from grpo_doctor_reports.reader import Node
from grpo_doctor_reports.run_facts import read_run
from grpo_doctor_reports.text_safety import PROSE_LIMIT
from grpo_doctor_reports.views import read_curves, read_heatmap, read_timeline, read_waterfall
from grpo_doctor_reports.whatif import read_whatif

SCHEMA_VERSION: Final = 1


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
        findings=read_findings(root.nodes("findings")),
        checks=Checks(
            passed=read_checks(root.nodes("passed"), "note"),
            not_run=read_checks(root.nodes("not_run"), "missing"),
            not_applicable=read_checks(root.nodes("not_applicable"), "reason"),
            failed=read_failed(root.nodes("rule_errors")),
        ),
        waterfall=read_waterfall(views.nodes("waterfall")),
        heatmap=read_heatmap(views.node("heatmap")),
        timeline=read_timeline(views.node("timeline")),
        curves=read_curves(views.node("metrics")),
        steps=read_steps(views.nodes("steps")),
        paths=read_paths(views),
        collectives=read_collectives(views.nodes("collectives")),
        whatif=read_whatif(root.node("whatif")),
        hangs=read_hang_pages(root.nodes("hangs")),
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
        gpu_truly_busy_pct=node.number("gpu_truly_busy_pct"),
        gpu_busy_by=node.text("gpu_busy_by"),
        tokens_per_s=node.number("tokens_per_s"),
        accounting=read_accounting(node),
        not_judged=node.texts("not_judged", PROSE_LIMIT),
    )


def _read_phase(name: str, node: Node) -> PhaseTime:
    kinds = read_kinds(node)
    return PhaseTime(
        phase=name,
        seconds=kinds.seconds,
        share=node.number("share"),
        work_s=kinds.work_s,
        wait_s=kinds.wait_s,
        transfer_s=kinds.transfer_s,
        idle_s=kinds.idle_s,
        p10_s=node.number("p10_s"),
        p90_s=node.number("p90_s"),
    )
