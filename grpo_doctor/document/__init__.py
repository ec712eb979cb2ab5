"""Assembles the one JSON document of a run: facts, summary, findings, views."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import grpo_doctor
from grpo_doctor.document.facts import rank_entries, run_entry
from grpo_doctor.document.memory import memory_entry
from grpo_doctor.document.results import Price, entries
from grpo_doctor.document.summary import summary
from grpo_doctor.document.views import views
from grpo_doctor.document.whatif import whatif_entry
from grpo_doctor.findings import RunView, run_rules
from grpo_doctor.findings.selection import Selection
from grpo_doctor.trace.model import Trace
from grpo_doctor_reports.schema.report import SCHEMA, HangEntry, ReportDocument, Tool

__all__ = ["SCHEMA", "Price", "ReportDocument", "build_document"]

EVERY_RULE = Selection()


def build_document(
    trace: Trace,
    selection: Selection = EVERY_RULE,
    price: Price | None = None,
    hangs: Sequence[HangEntry] = (),
) -> ReportDocument:
    """Analyze a recording, run the rules, and say it all as JSON-serialisable values.

    Any recording gives a document: without steps, without phases, cut off or with ranks missing.
    """
    view = RunView.of(trace)
    results = run_rules(view, selection.chosen)
    results = replace(results, not_applicable=(*results.not_applicable, *selection.left_out))
    return ReportDocument(
        schema=SCHEMA,
        tool=Tool(name="grpo-doctor", version=grpo_doctor.__version__),
        run=run_entry(view.trace),
        summary=summary(view.analysis, results, rank_entries(view.trace), hangs),
        **entries(results, view.analysis, price),
        views=views(view.analysis, [finding.steps for _, finding in results.findings]),
        whatif=whatif_entry(view, results),
        hangs=list(hangs),
        memory=memory_entry(view.analysis),
        trajectories=view.trace.trajectories,
    )
