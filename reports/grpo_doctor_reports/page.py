"""The report as one HTML file that opens offline."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, fields
from typing import Any

from markupsafe import Markup

from grpo_doctor_reports import assets
from grpo_doctor_reports.accounting import kind_shares
from grpo_doctor_reports.charts.chart import Chart
from grpo_doctor_reports.charts.curves import curves_chart
from grpo_doctor_reports.charts.heatmap import heatmap_chart
from grpo_doctor_reports.charts.lanes import lanes_chart, lanes_shown
from grpo_doctor_reports.charts.steps import slowest_ranks, steps_chart
from grpo_doctor_reports.charts.strips import strips_chart
from grpo_doctor_reports.charts.waterfall import waterfall_chart
from grpo_doctor_reports.document import read_document
from grpo_doctor_reports.model import Report
from grpo_doctor_reports.packing import NumberPool, script_json
from grpo_doctor_reports.page_words import report_environment
from grpo_doctor_reports.schema import AnyDocument
from grpo_doctor_reports.whatif import whatif_facts

_STEPS_LIT = 2_000  # of one finding; more than this is every step


@dataclass(frozen=True, slots=True)
class Charts:
    """The page's charts; None where the document has nothing to draw."""

    waterfall: Chart | None
    steps: Chart | None
    heatmap: Chart | None
    lanes: Chart | None
    strips: Chart | None
    curves: Chart | None


def render_html(document: AnyDocument) -> str:
    """Return the report as one self-contained HTML page (about 2 MB, no external requests).

    Args:
        document: what `grpo-doctor report --json` prints. Optional parts may be missing; every
            string in it is treated as hostile.

    Raises:
        DocumentError: the document has another schema, or a part of the wrong type.
        AssetError: plotly's JavaScript is not installed.
    """
    report = read_document(document)
    pool = NumberPool()
    charts = Charts(
        waterfall=waterfall_chart(report.waterfall),
        steps=steps_chart(report, pool),
        heatmap=heatmap_chart(report.heatmap, pool),
        lanes=lanes_chart(report, pool),
        strips=strips_chart(report.timeline, pool),
        curves=curves_chart(report.curves, pool, report.evaluation),
    )
    facts = _facts(report, charts)
    return report_environment().get_template("report.html.j2").render(
        report=report,
        charts=charts,
        has_step=_has_step(report, charts),
        ranks_known=facts["ranks"]["all"],
        rank_example=_rank_example(facts["ranks"]["all"]),
        command=shlex.join(report.run.command),
        plotly=assets.plotly_source(),
        script=Markup(assets.script()),  # noqa: S704 (our own file; its hash is in the policy)
        style=Markup(assets.style()),  # noqa: S704 (our own file)
        policy=assets.policy(assets.csp_hash(assets.script()), assets.plotly_source().csp_hash),
        facts=Markup(script_json(facts)),  # noqa: S704 (no < > & ' left in it)
        numbers=pool.packed(),
    )  # fmt: skip


def _has_step(report: Report, charts: Charts) -> bool:
    times = (charts.waterfall, kind_shares(report.summary), report.paths, report.collectives)
    return any(times)


def _facts(report: Report, charts: Charts) -> dict[str, Any]:
    drawn = {field.name: getattr(charts, field.name) for field in fields(charts)}
    facts = {name: chart.data for name, chart in drawn.items() if chart is not None}
    facts["findings"] = {
        finding.anchor: {
            "name": finding.id or "finding",
            "title": finding.title,
            "phases": finding.phases,
            "ranks": finding.ranks,
            "steps": finding.steps[:_STEPS_LIT],
        }
        for finding in report.findings[:100]
    }
    facts["ranks"] = {"all": _ranks(report), "slowest": slowest_ranks(report.heatmap)}
    if report.whatif is not None:
        facts["whatif"] = whatif_facts(report.whatif)
    return facts


def _ranks(report: Report) -> list[int]:
    ranks = {rank.rank for rank in report.run.ranks} | set(report.heatmap.ranks)
    return sorted(ranks | set(lanes_shown(report.timeline)))


def _rank_example(ranks: list[int]) -> str:
    half = max(1, len(ranks) // 2)
    return f"{ranks[0]}-{ranks[half - 1]}" if len(ranks) > 1 else "0"
