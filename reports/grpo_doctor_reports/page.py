"""The report as one HTML file that opens offline."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jinja2 import Environment
from markupsafe import Markup

from grpo_doctor_reports import assets, digest, formatting
from grpo_doctor_reports.charts.chart import Chart
from grpo_doctor_reports.charts.curves import curves_chart
from grpo_doctor_reports.charts.heatmap import heatmap_chart
from grpo_doctor_reports.charts.strips import strips_chart
from grpo_doctor_reports.charts.waterfall import waterfall_chart
from grpo_doctor_reports.document import read_document
from grpo_doctor_reports.glossary import PHASE_MEANINGS, TERMS
from grpo_doctor_reports.jinja import template_environment
from grpo_doctor_reports.model import Report
from grpo_doctor_reports.packing import NumberPool, script_json
from grpo_doctor_reports.palette import PHASE_COLORS, UNATTRIBUTED
from grpo_doctor_reports.severity import severity_class


@dataclass(frozen=True, slots=True)
class Charts:
    """The page's charts; None where the document has nothing to draw."""

    waterfall: Chart | None
    heatmap: Chart | None
    strips: Chart | None
    curves: Chart | None


def render_html(document: Mapping[str, Any]) -> str:
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
        heatmap=heatmap_chart(report.heatmap, pool),
        strips=strips_chart(report.timeline, pool),
        curves=curves_chart(report.curves, pool),
    )
    return _environment().get_template("report.html.j2").render(
        report=report,
        charts=charts,
        command=shlex.join(report.run.command),
        plotly=assets.plotly_source(),
        script=Markup(assets.script()),  # noqa: S704 (our own file; its hash is in the policy)
        style=Markup(assets.style()),  # noqa: S704 (our own file)
        policy=_policy(),
        facts=Markup(script_json(_facts(charts))),  # noqa: S704 (no < > & ' left in it)
        numbers=pool.packed(),
    )  # fmt: skip


def _policy() -> str:
    scripts = f"{assets.csp_hash(assets.script())} {assets.plotly_source().csp_hash}"
    return (
        f"default-src 'none'; script-src {scripts}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _facts(charts: Charts) -> dict[str, Any]:
    drawn = {
        "waterfall": charts.waterfall,
        "heatmap": charts.heatmap,
        "strips": charts.strips,
        "curves": charts.curves,
    }
    return {name: chart.data for name, chart in drawn.items() if chart is not None}


def _environment() -> Environment:
    environment = template_environment()
    environment.filters.update(
        bytes=formatting.size,
        compact=formatting.compact,
        count=formatting.count,
        number=formatting.number,
        ranges=formatting.int_ranges,
        seconds=formatting.seconds,
        share=formatting.share,
        utc=formatting.utc,
        phase_class=phase_class,
        severity_class=severity_class,
    )
    environment.globals.update(
        digest=digest,
        glossary_phases=PHASE_MEANINGS,
        glossary_terms=TERMS,
        phases_of=_phases_drawn,
    )
    return environment


def phase_class(phase: str) -> str:
    """Return the CSS class of a phase's colour; unknown phases share the grey."""
    name = phase.partition("/")[0]
    return f"phase-{name if name in PHASE_COLORS else UNATTRIBUTED}"


def _phases_drawn(report: Report) -> list[str]:
    present = {band.phase for band in report.timeline.bands}
    return [phase for phase in PHASE_COLORS if phase in present]
