"""The report as one HTML file that opens offline."""

from __future__ import annotations

import re
import shlex
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

from jinja2 import Environment
from markupsafe import Markup
from msgspec.structs import replace

from grpo_doctor_reports import assets, digest, formatting, glossary, time_words, whatif
from grpo_doctor_reports.charts.chart import Chart
from grpo_doctor_reports.charts.curves import curves_chart
from grpo_doctor_reports.charts.heatmap import heatmap_chart
from grpo_doctor_reports.charts.lanes import lanes_chart, lanes_shown
from grpo_doctor_reports.charts.steps import slowest_ranks, steps_chart
from grpo_doctor_reports.charts.strips import strips_chart
from grpo_doctor_reports.charts.waterfall import waterfall_chart
from grpo_doctor_reports.markdown import finding_markdown
from grpo_doctor_reports.packing import NumberPool, script_json
from grpo_doctor_reports.palette import PHASE_COLORS, phase_class
from grpo_doctor_reports.schema import AnyDocument
from grpo_doctor_reports.schema.findings import (
    NotApplicableEntry,
    NotRunEntry,
    PassedEntry,
    RuleEntry,
    RuleErrorEntry,
)
from grpo_doctor_reports.schema.report import ReportDocument, read_report
from grpo_doctor_reports.severity import severity_class

_STEPS_LIT = 2_000  # of one finding; more than this is every step
_MANY = 4  # checks that lack the same: it is said once for all of them
_PART = r"[A-Za-z0-9_][A-Za-z0-9._-]{0,100}"  # no dot first: neither hidden nor a way up
_RELATIVE_PAGE = re.compile(rf"(?:{_PART}/){{0,8}}{_PART}\.html")


def render_html(document: AnyDocument) -> str:
    """Return the report as one self-contained HTML page (about 2 MB, no external requests).

    Args:
        document: what `grpo-doctor report --json` prints. Optional parts may be missing; every
            string in it is treated as hostile.

    Raises:
        DocumentError: the document has another schema, or a part of it is damaged.
        AssetError: plotly's JavaScript is not installed.
    """
    report = read_report(document)
    views, pool = report.views, NumberPool()
    bars = [
        replace(time_words.with_bounded_kinds(bar), start_s=max(0.0, bar.start_s))
        for bar in views.waterfall
    ]
    charts = {
        "waterfall": waterfall_chart(bars),
        "steps": steps_chart(views, pool),
        "heatmap": heatmap_chart(views.heatmap, pool),
        "lanes": lanes_chart(report, pool),
        "strips": strips_chart(views.timeline, pool),
        "curves": curves_chart(views.metrics, pool, views.evaluation),
    }
    facts = _facts(report, charts)
    page: str = _environment().get_template("report.html.j2").render(
        report=report,
        findings=digest.numbered(report.findings),
        charts=charts,
        bars=bars,
        paths={
            name: path
            for name, path in (
                ("median", views.critical_path), ("worst", views.critical_path_worst),
            )
            if path and time_words.lanes_of(path)
        },
        collectives=sorted(views.collectives, key=lambda calls: -calls.seconds),
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
    return page


def _environment() -> Environment:
    """The templates' environment with all that they call."""
    environment = assets.template_environment()
    environment.filters.update(
        bytes=formatting.size,
        count=formatting.count,
        cut=time_words.cut,
        measured=digest.measured,
        number=formatting.number,
        ranges=formatting.int_ranges,
        seconds=formatting.seconds,
        share=formatting.share,
        utc=formatting.utc,
        phase_class=phase_class,
        severity_class=severity_class,
    )
    environment.tests["linkable"] = is_linkable
    environment.globals.update(
        by_reason=by_reason,
        digest=digest,
        glossary=glossary,
        markdown=finding_markdown,
        phases_of=phases_drawn,
        time_words=time_words,
        whatifs=whatif,
    )
    return environment


def _facts(report: ReportDocument, charts: dict[str, Chart | None]) -> dict[str, Any]:
    facts = {name: chart.data for name, chart in charts.items() if chart is not None}
    facts["findings"] = {
        anchor: {
            "name": finding.id or "finding",
            "title": finding.title,
            "phases": finding.phases,
            "ranks": finding.ranks,
            "steps": finding.steps[:_STEPS_LIT],
        }
        for anchor, finding in digest.numbered(report.findings[:100])
    }
    heatmap = report.views.heatmap
    facts["ranks"] = {"all": _ranks(report), "slowest": slowest_ranks(heatmap)}
    if report.whatif.fixes or report.whatif.unknown:
        facts["whatif"] = whatif.whatif_facts(report.whatif)
    return facts


def _ranks(report: ReportDocument) -> list[int]:
    ranks = {rank.rank for rank in report.run.ranks} | set(report.views.heatmap.ranks)
    return sorted(ranks | set(lanes_shown(report.views.timeline)))


def _rank_example(ranks: list[int]) -> str:
    half = max(1, len(ranks) // 2)
    return f"{ranks[0]}-{ranks[half - 1]}" if len(ranks) > 1 else "0"


def is_linkable(page: str) -> bool:
    """Return whether a path, a stranger's, is that of a page below the report's folder."""
    return _RELATIVE_PAGE.fullmatch(page) is not None


def by_reason(checks: Sequence[RuleEntry]) -> list[tuple[str, list[tuple[RuleEntry, str]]]]:
    """Return rules that did not fire under what many of them lack, each with what it alone says."""
    lacking = Counter(signal for check in checks for signal in _signals(check))
    shared = {signal for signal, number in lacking.items() if number >= _MANY}
    groups: dict[str, list[tuple[RuleEntry, str]]] = defaultdict(list)
    for check in checks:
        signals = _signals(check)
        own = " · ".join(signal for signal in signals if signal not in shared)
        reason = " · ".join(signal for signal in signals if signal in shared)
        groups[reason].append((check, own if signals else _note(check)))
    return sorted(groups.items(), key=lambda group: (not group[0], -len(group[1])))


def _signals(check: RuleEntry) -> list[str]:
    return check.signals if isinstance(check, NotRunEntry) else []


def _note(check: RuleEntry) -> str:
    """Why a rule did not fire."""
    match check:
        case PassedEntry(note=note) | NotRunEntry(missing=note) | NotApplicableEntry(reason=note):
            return note
        case RuleErrorEntry():
            return digest.error_words(check)
    return ""


def phases_drawn(report: ReportDocument) -> list[str]:
    """Return the known phases that the timeline shows, in the order of the palette."""
    timeline, buckets = report.views.timeline, report.views.step_buckets
    present = {
        *timeline.exact.names,
        *timeline.ranks.phase_seconds,
        *buckets.phase_seconds,
    }
    return [phase for phase in PHASE_COLORS if phase in present]
