"""Read the report document into what the renderers draw."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from grpo_doctor_reports import schema
from grpo_doctor_reports.accounting import (
    read_collectives,
    read_paths,
    read_steps,
    with_bounded_kinds,
)
from grpo_doctor_reports.finding_model import Check, Checks
from grpo_doctor_reports.findings import read_findings
from grpo_doctor_reports.model import Report
from grpo_doctor_reports.palette import order_of
from grpo_doctor_reports.run_facts import read_run
from grpo_doctor_reports.schema.findings import RuleEntry, RuleErrorEntry
from grpo_doctor_reports.schema.report import SCHEMA, PhaseEntry, ReportDocument
from grpo_doctor_reports.timeline import read_step_buckets, read_timeline
from grpo_doctor_reports.views import read_curves, read_evaluation, read_heatmap
from grpo_doctor_reports.whatif import read_whatif


def read_document(document: schema.AnyDocument) -> Report:
    """Return the document as a Report.

    Raises:
        DocumentError: the schema is missing or not 1, or a part has the wrong type.
    """
    parts = schema.read(document, ReportDocument, SCHEMA, "grpo-doctor report --json")
    summary, views = parts.summary, parts.views
    return Report(
        tool=parts.tool.name or "grpo-doctor",
        version=parts.tool.version,
        run=read_run(parts.run),
        summary=replace(summary, phases=_read_phases(summary.phases)),
        findings=read_findings(parts.findings),
        checks=_read_checks(parts),
        waterfall=[
            replace(with_bounded_kinds(entry), start_s=max(0.0, entry.start_s))
            for entry in views.waterfall
        ],
        heatmap=read_heatmap(views.heatmap),
        timeline=read_timeline(views.timeline),
        curves=read_curves(views.metrics),
        evaluation=read_evaluation(views.evaluation),
        steps=read_steps(views.steps),
        step_buckets=read_step_buckets(views.step_buckets),
        paths=read_paths(views),
        collectives=read_collectives(views.collectives),
        whatif=read_whatif(parts.whatif),
        hangs=parts.hangs,
        memory=parts.memory,
    )


def _read_checks(parts: ReportDocument) -> Checks:
    def check(rule: RuleEntry, note: str, **more: Any) -> Check:
        return Check(rule.id, rule.slug, rule.title, note, **more)

    def error(rule: RuleErrorEntry) -> str:
        return ": ".join(filter(None, (rule.exception, rule.message)))

    return Checks(
        passed=[check(rule, rule.note) for rule in parts.passed],
        not_run=[check(rule, rule.missing, signals=rule.signals) for rule in parts.not_run],
        not_applicable=[
            check(rule, rule.reason, left_out=rule.left_out) for rule in parts.not_applicable
        ],
        failed=[check(rule, error(rule)) for rule in parts.rule_errors],
    )


def _read_phases(phases: dict[str, PhaseEntry]) -> dict[str, PhaseEntry]:
    return {name: with_bounded_kinds(phases[name]) for name in sorted(phases, key=order_of)}
