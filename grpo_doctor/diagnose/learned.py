"""What the rules of `report` find in the metric rows of a text."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

from grpo_doctor.diagnose.model import Finding
from grpo_doctor.errors import TraceError
from grpo_doctor.findings import RunView, run_rules
from grpo_doctor.findings import rule as rules
from grpo_doctor.importers.load import load

_MOST = 2
_SURE = 0.9
# What `diagnose` says itself, of the same lines: the error that ended a run.
_SAID_BY_THE_TEXT = ("GD074", "GD075")


def rows_findings(text: str) -> list[Finding]:
    """Return what is worth acting on, most severe first; nothing where no row can be read."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.log"
        path.write_text(text, "utf-8", "replace")
        try:
            trace = load(path)
        except TraceError:
            return []
    # Of a part of a log: what a configuration does not name may be in another part.
    trace = replace(trace, run=replace(trace.run, config={}))
    results = run_rules(RunView.of(trace))
    severe = [
        _finding(rule.id, rule.title, found)
        for rule, found in results.findings
        if found.is_severe and rule.id not in _SAID_BY_THE_TEXT
    ]
    return severe[:_MOST]


def _finding(id_: str, title: str, found: rules.Finding) -> Finding:
    headline = found.headline or title
    said = found.cause if found.cause.startswith(headline) else f"{headline}. {found.cause}"
    fixes = [fix.spelling for fix in (*found.to_paste, *found.next_steps)]
    return Finding(
        name=id_,
        cls="quality" if not found.phases else "slow",
        certainty="likely" if found.confidence >= _SURE else "possible",
        says=f"{id_}: {said}",
        fix=fixes,
    )
