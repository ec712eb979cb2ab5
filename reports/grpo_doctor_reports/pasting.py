"""A finding as Markdown, for a chat or an issue."""

from __future__ import annotations

import re

from grpo_doctor_reports import digest
from grpo_doctor_reports.costs import cost_words
from grpo_doctor_reports.finding_model import Finding
from grpo_doctor_reports.findings import measured
from grpo_doctor_reports.schema.findings import EvidenceEntry, FixEntry

_SPECIAL = str.maketrans({mark: f"\\{mark}" for mark in "\\`*_[]<>#|!"})


def markdown(finding: Finding) -> str:
    """Return a finding so that its words show as they are, whatever they hold."""
    cost = ", ".join(cost_words(finding.cost))
    lines = [f"**{_text(finding.id)} {_text(finding.title)}** ({_text(finding.severity)})", ""]
    lines += [f"Costs {cost}.", ""] if cost else []
    lines += [_evidence(item) for item in finding.evidence]
    lines += ["", f"Cause: {_text(finding.cause)}"] if finding.cause else []
    for fix in finding.fixes:
        lines += ["", *_fix(fix)]
    for step in finding.next_steps:
        lines += ["", f"Next step: {_text(step.text)}"]
    return "\n".join(lines)


def _evidence(item: EvidenceEntry) -> str:
    source = f" ({_text(item.source)})" if item.source else ""
    return f"- {_text(item.text)}: {_text(measured(item))}{source}"


def _fix(fix: FixEntry) -> list[str]:
    typed = digest.fix_line(fix)
    longest = max(map(len, re.findall("`+", typed)), default=0)
    fence = "`" * max(3, 1 + longest)
    safety = digest.safety_words(fix.safety)
    effect = "; ".join(filter(None, [digest.gain_sentence(fix.predicted), safety]))
    return [fence, typed, fence, _text(effect)]


def _text(words: str) -> str:
    return words.translate(_SPECIAL)
