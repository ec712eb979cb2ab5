"""A report where others read it: Markdown for a comment, annotations for the log of an action."""

from __future__ import annotations

from collections.abc import Iterator

from grpo_doctor_reports import digest, formatting
from grpo_doctor_reports.annotations import annotation, level_of
from grpo_doctor_reports.document import read_document
from grpo_doctor_reports.finding_model import Finding
from grpo_doctor_reports.key_numbers import key_numbers
from grpo_doctor_reports.model import Report
from grpo_doctor_reports.run_facts import framework_words
from grpo_doctor_reports.schema import AnyDocument

_MARKS = {"high": "🔴", "medium": "🟠", "low": "🟡"}
_SPECIAL = str.maketrans({character: f"\\{character}" for character in "\\`*_{}[]<>#|~"})


def render_markdown(document: AnyDocument) -> str:
    """The digest as GitHub-flavoured Markdown: verdict, step table, findings with their fixes.

    Raises:
        DocumentError: the document has another schema, or a part of the wrong type.
    """
    report = read_document(document)
    return "\n".join(_markdown(report)) + "\n"


def _markdown(report: Report) -> Iterator[str]:
    run = report.run
    name = framework_words(run)
    yield f"### grpo-doctor: {_escaped(run.id)}" + (f" ({_escaped(name)})" if name else "")
    yield ""
    yield f"**{_escaped(digest.verdict(report))}**"
    for sentence in (*digest.losses(report), *digest.stalls(report)):
        yield f"\n> {_escaped(sentence)}"
    yield ""
    yield " · ".join(
        f"{n.label} {_escaped(n.value)}" + (f" ({_escaped(n.detail)})" if n.detail else "")
        for n in key_numbers(report)
    )
    yield ""
    yield "| phase | time | share | wait |"
    yield "|---|---:|---:|---:|"
    for part in digest.step_bar(report):
        waits = formatting.seconds(part.wait_s) if part.wait_s else ""
        share = formatting.share(part.fraction)
        phase = _escaped(part.phase) + " (host time)" * part.host_time
        yield f"| {phase} | {formatting.seconds(part.seconds)} | {share} | {waits} |"
    yield ""
    for finding in report.findings:
        yield from _finding(finding)
    if not report.findings:
        made, skipped = len(report.checks.passed), len(report.checks.not_run)
        yield f"No problem found in {made} of {made + skipped} checks; {skipped} were skipped."


def _finding(finding: Finding) -> Iterator[str]:
    mark = _MARKS.get(finding.severity, "⚪")
    title = _escaped(f"{finding.id} {finding.title}")
    yield f"- {mark} **{title}** ({_escaped(finding.severity)})"
    if finding.cause:
        yield f"  {_escaped(finding.cause)}"
    fix = digest.main_fix(finding)
    if fix is not None:
        gain = digest.gain_sentence(fix.predicted)
        yield f"  Fix: {_code(digest.fix_line(fix))} ({gain})"
    elif (step := digest.main_step(finding)) is not None:
        yield f"  Next step: {_escaped(step.text)} ({digest.gain_sentence(step.predicted)})"


def _escaped(text: str) -> str:
    """On one line, without Markdown of its own but for code between backticks."""
    parts = " ".join(text.split()).split("`")
    if len(parts) % 2 == 0:  # a backtick that nothing closes
        return "`".join(parts).translate(_SPECIAL)
    return "".join(
        _code(part) if index % 2 and part else part.translate(_SPECIAL)
        for index, part in enumerate(parts)
    )


def _code(text: str) -> str:
    """As code, fenced by one backtick more than the text has in a row."""
    plain = " ".join(text.split())
    fence = "`"
    while fence in plain:
        fence += "`"
    pad = " " if plain.startswith("`") or plain.endswith("`") else ""
    return f"{fence}{pad}{plain}{pad}{fence}"


def render_annotations(document: AnyDocument) -> str:
    """One workflow command per finding: error, warning or notice by its severity.

    Raises:
        DocumentError: the document has another schema, or a part of the wrong type.
    """
    report = read_document(document)
    lines = [_annotation(finding) for finding in report.findings]
    lines.append(annotation("notice", digest.verdict(report), title="grpo-doctor"))
    return "\n".join(lines) + "\n"


def _annotation(finding: Finding) -> str:
    fix = digest.main_fix(finding)
    text = finding.cause or finding.title
    step = digest.main_step(finding)
    advice = (
        f"\nFix: {digest.fix_line(fix)}" if fix else f"\nNext step: {step.text}" if step else ""
    )
    title = f"{finding.id} {finding.title}"
    return annotation(level_of(finding.severity), text + advice, title=title)
