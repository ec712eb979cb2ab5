"""A report where others read it: Markdown for a comment or a chat, lines for the log of an action.

Workflow commands of GitHub Actions are lines of a log that become annotations:
https://docs.github.com/actions/reference/workflows-and-actions/workflow-commands
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from grpo_doctor_reports import digest, formatting, trajectory_words
from grpo_doctor_reports.schema import AnyDocument
from grpo_doctor_reports.schema.findings import Evidence, FindingEntry, FixEntry
from grpo_doctor_reports.schema.report import ReportDocument, read_report

_MARKS = {"high": "🔴", "medium": "🟠", "low": "🟡"}
_SPECIAL = str.maketrans({character: f"\\{character}" for character in "\\`*_{}[]<>#|~"})


def render_markdown(document: AnyDocument) -> str:
    """The digest as GitHub-flavoured Markdown: verdict, step table, findings with their fixes."""
    report = read_report(document)
    return "\n".join(_markdown(report)) + "\n"


def _markdown(report: ReportDocument) -> Iterator[str]:
    run = report.run
    name = digest.framework_words(run)
    yield f"### grpo-doctor: {_escaped(run.id)}" + (f" ({_escaped(name)})" if name else "")
    yield ""
    yield f"**{_escaped(digest.verdict(report))}**"
    for sentence in (*digest.losses(report), *digest.stalls(report)):
        yield f"\n> {_escaped(sentence)}"
    yield ""
    yield _escaped(digest.key_numbers_line(report))
    yield ""
    parts = digest.step_bar(report)
    if not parts:
        yield digest.bar_sentence(parts)
    else:
        yield "| phase | time | share | wait |"
        yield "|---|---:|---:|---:|"
    for part in parts:
        waits = formatting.seconds(part.wait_seconds) if part.wait_seconds else ""
        share = formatting.share(part.fraction)
        phase = _escaped(part.phase) + " (host time)" * part.host_time
        yield f"| {phase} | {formatting.seconds(part.seconds)} | {share} | {waits} |"
    yield ""
    for sentence in trajectory_words.sentences(report.trajectories):
        yield f"{_escaped(sentence)}\n"
    for finding in report.findings:
        yield from _finding(finding)
    if not report.findings:
        made, skipped = len(report.passed), len(report.not_run)
        yield f"No problem found in {made} of {made + skipped} checks; {skipped} were skipped."


def _finding(finding: FindingEntry) -> Iterator[str]:
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
    """One workflow command per finding: error, warning or notice by its severity."""
    report = read_report(document)
    lines = [_annotation(finding) for finding in report.findings]
    lines.append(annotation("notice", digest.verdict(report), title="grpo-doctor"))
    return "\n".join(lines) + "\n"


def _annotation(finding: FindingEntry) -> str:
    fix = digest.main_fix(finding)
    text = finding.cause or finding.title
    step = digest.main_step(finding)
    advice = (
        f"\nFix: {digest.fix_line(fix)}" if fix else f"\nNext step: {step.text}" if step else ""
    )
    title = f"{finding.id} {finding.title}"
    return annotation(level_of(finding.severity), text + advice, title=title)


_SPECIAL_IN_CHATS = str.maketrans({mark: f"\\{mark}" for mark in "\\`*_[]<>#|!"})


def finding_markdown(finding: FindingEntry) -> str:
    """Return a finding so that its words show as they are, whatever they hold."""
    cost = ", ".join(digest.cost_words(finding.cost))
    lines = [
        f"**{verbatim(finding.id)} {verbatim(finding.title)}** ({verbatim(finding.severity)})",
        "",
    ]
    lines += [f"Costs {cost}.", ""] if cost else []
    lines += [_evidence(item) for item in finding.evidence]
    lines += ["", f"Cause: {verbatim(finding.cause)}"] if finding.cause else []
    for fix in finding.fixes:
        lines += ["", *_fix(fix)]
    for step in finding.next_steps:
        lines += ["", f"Next step: {verbatim(step.text)}"]
    return "\n".join(lines)


def _evidence(item: Evidence) -> str:
    source = f" ({verbatim(item.source)})" if item.source else ""
    return f"- {verbatim(item.text)}: {verbatim(digest.measured(item))}{source}"


def _fix(fix: FixEntry) -> list[str]:
    typed = digest.fix_line(fix)
    longest = max(map(len, re.findall("`+", typed)), default=0)
    fence = "`" * max(3, 1 + longest)
    safety = digest.safety_words(fix.safety)
    effect = "; ".join(filter(None, [digest.gain_sentence(fix.predicted), safety]))
    return [fence, typed, fence, verbatim(effect)]


def verbatim(words: str) -> str:
    """Return words so that Markdown shows them as they are."""
    return words.translate(_SPECIAL_IN_CHATS)


_LEVELS = {"high": "error", "medium": "warning"}


def level_of(severity: str) -> str:
    """`error`, `warning` or `notice`."""
    return _LEVELS.get(severity, "notice")


def annotation(level: str, text: str, **properties: object) -> str:
    """One command. `properties` are such as `file`, `line` and `title`."""
    pairs = ",".join(f"{name}={_property(str(value))}" for name, value in properties.items())
    return f"::{level}{' ' if pairs else ''}{pairs}::{_data(text)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
