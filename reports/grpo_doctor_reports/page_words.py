"""What templates ask for beyond the document: filters, words, and small look-ups."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from jinja2 import Environment

from grpo_doctor_reports import digest, formatting, time_words
from grpo_doctor_reports.accounting import kind_shares
from grpo_doctor_reports.costs import cost_words
from grpo_doctor_reports.families import families, severities
from grpo_doctor_reports.finding_model import Check
from grpo_doctor_reports.findings import measured
from grpo_doctor_reports.glossary import KEYS, PHASE_MEANINGS, TERMS
from grpo_doctor_reports.hang_pages import is_linkable
from grpo_doctor_reports.jinja import template_environment
from grpo_doctor_reports.key_numbers import key_numbers, setup_parts
from grpo_doctor_reports.model import Report
from grpo_doctor_reports.palette import PHASE_COLORS, UNATTRIBUTED
from grpo_doctor_reports.pasting import markdown
from grpo_doctor_reports.run_facts import framework_words, setting_pairs
from grpo_doctor_reports.severity import severity_class
from grpo_doctor_reports.whatif import (
    joint_flags,
    joint_words,
    same_gain,
    together_words,
)

_MANY = 4  # checks that lack the same: it is said once for all of them


def report_environment() -> Environment:
    """Return the templates' environment with all that they call."""
    environment = template_environment()
    environment.filters.update(
        bytes=formatting.size,
        compact=formatting.compact,
        count=formatting.count,
        cut=time_words.cut,
        measured=measured,
        number=formatting.number,
        ranges=formatting.int_ranges,
        seconds=formatting.seconds,
        framework_words=framework_words,
        setting_pairs=setting_pairs,
        share=formatting.share,
        utc=formatting.utc,
        phase_class=phase_class,
        severity_class=severity_class,
    )
    environment.tests["linkable"] = is_linkable
    environment.globals.update(
        accounting_sentence=time_words.accounting_sentence,
        by_reason=by_reason,
        cost_words=cost_words,
        digest=digest,
        families=families,
        glossary_phases=PHASE_MEANINGS,
        glossary_terms=TERMS,
        joint_flags=joint_flags,
        joint_words=joint_words,
        key_numbers=key_numbers,
        kind_shares=kind_shares,
        keys=KEYS,
        lanes_of=time_words.lanes_of,
        longest_collective=time_words.longest_collective,
        markdown=markdown,
        path_sentence=time_words.path_sentence,
        phases_of=phases_drawn,
        same_gain=same_gain,
        seldom_words=time_words.seldom_words,
        setup_parts=setup_parts,
        severities=severities,
        time_notes=time_words.time_notes,
        together_words=together_words,
    )
    return environment


def by_reason(skipped: Sequence[Check]) -> list[tuple[str, list[tuple[Check, str]]]]:
    """Return the skipped checks under what many of them lack, each with what it alone lacks."""
    lacking = Counter(signal for check in skipped for signal in check.signals)
    shared = {signal for signal, checks in lacking.items() if checks >= _MANY}
    groups: dict[str, list[tuple[Check, str]]] = defaultdict(list)
    for check in skipped:
        own = " · ".join(signal for signal in check.signals if signal not in shared)
        reason = " · ".join(signal for signal in check.signals if signal in shared)
        groups[reason].append((check, own if check.signals else check.note))
    return sorted(groups.items(), key=lambda group: (not group[0], -len(group[1])))


def phase_class(phase: str) -> str:
    """Return the CSS class of a phase's colour; unknown phases share the grey."""
    name = phase.partition("/")[0]
    return f"phase-{name if name in PHASE_COLORS else UNATTRIBUTED}"


def phases_drawn(report: Report) -> list[str]:
    """Return the known phases that the timeline shows, in the order of the palette."""
    exact, ranks = report.timeline.exact, report.timeline.ranks
    present = {*exact.names, *ranks.phase_seconds, *report.step_buckets.phase_seconds}
    return [phase for phase in PHASE_COLORS if phase in present]
