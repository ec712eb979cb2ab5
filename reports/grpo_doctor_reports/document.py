"""Read the report document into what the renderers draw."""

from __future__ import annotations

from grpo_doctor_reports import schema
from grpo_doctor_reports.accounting import (
    read_accounting,
    read_collectives,
    read_kinds,
    read_paths,
    read_steps,
)
from grpo_doctor_reports.finding_model import Check, Checks
from grpo_doctor_reports.findings import read_findings
from grpo_doctor_reports.hang_pages import read_hang_pages
from grpo_doctor_reports.model import PhaseTime, Report, Summary
from grpo_doctor_reports.palette import order_of
from grpo_doctor_reports.run_facts import read_run
from grpo_doctor_reports.schema.report import SCHEMA, PhaseEntry, ReportDocument
from grpo_doctor_reports.schema.report import Summary as SummaryPart
from grpo_doctor_reports.timeline import read_step_buckets, read_timeline
from grpo_doctor_reports.views import read_curves, read_evaluation, read_heatmap, read_waterfall
from grpo_doctor_reports.whatif import read_whatif


def read_document(document: schema.AnyDocument) -> Report:
    """Return the document as a Report.

    Raises:
        DocumentError: the schema is missing or not 1, or a part has the wrong type.
    """
    whole = schema.read(document, ReportDocument, SCHEMA, "grpo-doctor report --json")
    views = whole.views
    heatmap, steps = read_heatmap(views.heatmap), read_steps(views.steps)
    return Report(
        tool=whole.tool.name or "grpo-doctor",
        version=whole.tool.version,
        run=read_run(whole.run),
        summary=_read_summary(whole.summary),
        findings=read_findings(whole.findings),
        checks=_read_checks(whole),
        waterfall=read_waterfall(views.waterfall),
        heatmap=heatmap,
        timeline=read_timeline(views.timeline),
        curves=read_curves(views.metrics),
        evaluation=read_evaluation(views.evaluation),
        steps=steps,
        step_buckets=read_step_buckets(views.step_buckets, steps, heatmap),
        paths=read_paths(views),
        collectives=read_collectives(views.collectives),
        whatif=read_whatif(whole.whatif),
        hangs=read_hang_pages(whole.hangs),
        memory=whole.memory,
    )


def _read_checks(whole: ReportDocument) -> Checks:
    return Checks(
        passed=[Check(rule.id, rule.slug, rule.title, rule.note) for rule in whole.passed],
        not_run=[
            Check(rule.id, rule.slug, rule.title, rule.missing, signals=rule.signals)
            for rule in whole.not_run
        ],
        not_applicable=[
            Check(rule.id, rule.slug, rule.title, rule.reason, left_out=rule.left_out)
            for rule in whole.not_applicable
        ],
        failed=[
            Check(
                rule.id,
                rule.slug,
                rule.title,
                ": ".join(filter(None, (rule.exception, rule.message))),
            )
            for rule in whole.rule_errors
        ],
    )


def _read_summary(part: SummaryPart) -> Summary:
    phases = [_read_phase(name, phase) for name, phase in part.phases.items()]
    return Summary(
        verdict=part.verdict,
        step_time_s=part.step_time_s,
        p10_s=part.step_time_p10_s,
        p90_s=part.step_time_p90_s,
        steps=part.steps,
        steps_total=part.steps_total,
        warmup_steps=part.warmup_steps,
        phases=sorted(phases, key=lambda phase: order_of(phase.phase)),
        unattributed_share=part.unattributed_share,
        unattributed_s=part.unattributed_seconds,
        gpu_busy_pct=part.gpu_busy_pct,
        gpu_truly_busy_pct=part.gpu_truly_busy_pct,
        gpu_busy_by=part.gpu_busy_by or "",
        tokens_per_s=part.tokens_per_s,
        tokens_per_s_per_gpu=part.tokens_per_s_per_gpu,
        accounting=read_accounting(part),
        not_judged=part.not_judged,
    )


def _read_phase(name: str, part: PhaseEntry) -> PhaseTime:
    kinds = read_kinds(part)
    return PhaseTime(
        phase=name,
        seconds=kinds.seconds,
        share=part.share,
        work_s=kinds.work_s,
        wait_s=kinds.wait_s,
        transfer_s=kinds.transfer_s,
        idle_s=kinds.idle_s,
        p10_s=part.p10_s,
        p90_s=part.p90_s,
        host_time=part.host_time,
    )
