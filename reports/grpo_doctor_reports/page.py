"""The report as one HTML file that opens offline."""

from __future__ import annotations

import re
import shlex
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

from jinja2 import Environment
from markupsafe import Markup

from grpo_doctor_reports import (
    assets,
    digest,
    formatting,
    glossary,
    time_words,
    trajectory_words,
    whatif,
)
from grpo_doctor_reports.charts import bars_of, charts_of
from grpo_doctor_reports.charts.figure import Chart, TimeAxis, packed
from grpo_doctor_reports.markdown import finding_markdown
from grpo_doctor_reports.palette import PHASE_COLORS, STATE_COLORS, phase_class
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
_CHARTS = ("waterfall", "steps", "heatmap", "lanes", "strips", "curves", "trajectories")
_MANY = 4  # checks that lack the same: stated once for all of them
_PART = r"[A-Za-z0-9_][A-Za-z0-9._-]{0,100}"  # no dot first: neither hidden nor a way up
_RELATIVE_PAGE = re.compile(rf"(?:{_PART}/){{0,8}}{_PART}\.html")


def render_html(document: AnyDocument) -> str:
    """Return the report as one self-contained HTML page (about 2 MB, no external requests).

    Args:
        document: what `grpo-doctor report --json` prints. Optional parts may be missing; every
            string in it is treated as hostile.
    """
    report = read_report(document)
    views, bars, charts = report.views, bars_of(report), charts_of(report)
    places = [(name, part) for name, chart in charts.items() for part in chart.figures]
    figures = [charts[name].figures[part] for name, part in places]
    page: str = _environment().get_template("report.html.j2").render(
        report=report,
        findings=digest.numbered(report.findings),
        charts={**dict.fromkeys(_CHARTS), **charts},
        place={place: at for at, place in enumerate(places)},
        bars=bars,
        paths={
            name: path
            for name, path in (
                ("median", views.critical_path), ("worst", views.critical_path_worst),
            )
            if path and time_words.lanes_of(path)
        },
        collectives=sorted(views.collectives, key=lambda calls: -calls.seconds),
        command=shlex.join(report.run.command),
        plotly=assets.plotly_source(),
        script=Markup(assets.script()),  # noqa: S704 (our own file; its hash is in the policy)
        style=Markup(assets.style()),  # noqa: S704 (our own file)
        policy=assets.policy(assets.csp_hash(assets.script()), assets.plotly_source().csp_hash),
        facts=packed({**_facts(report, charts), "figures": figures}),
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
        trajectory_words=trajectory_words,
        state_colors=STATE_COLORS,
    )
    return environment


def _facts(report: ReportDocument, charts: dict[str, Chart]) -> dict[str, Any]:
    """What the script knows of the run, next to the figures."""
    end_s = report.views.timeline.end_s or max((s.end_s for s in report.views.steps), default=1.0)
    divisor, unit = TimeAxis(end_s).unit
    return {
        "time": {"end": end_s, "divisor": divisor, "unit": unit},
        "steps": charts["steps"].facts if "steps" in charts else None,
        "labels": charts["heatmap"].facts["labels"] if "heatmap" in charts else [],
        "findings": {
            anchor: {
                "name": finding.id or "finding",
                "title": finding.title,
                "phases": finding.phases,
                "ranks": finding.ranks,
                "steps": finding.steps[:_STEPS_LIT],
            }
            for anchor, finding in digest.numbered(report.findings[:100])
        },
        "whatif": whatif.whatif_facts(report.whatif),
    }


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
