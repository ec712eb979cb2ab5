"""The report as a terminal digest: the page's first screen, in the same words."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean
from textwrap import indent

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from grpo_doctor_reports import digest, formatting, trajectory_words
from grpo_doctor_reports.charts.curves import best_words, from_to, known, trained_metric
from grpo_doctor_reports.charts.figure import bin_edges
from grpo_doctor_reports.console import Command, as_text, sentence
from grpo_doctor_reports.palette import color_of
from grpo_doctor_reports.schema import AnyDocument
from grpo_doctor_reports.schema.findings import FindingEntry
from grpo_doctor_reports.schema.part import Numbers
from grpo_doctor_reports.schema.report import (
    MemoryAdvice,
    MemoryCompared,
    ReportDocument,
    read_report,
)
from grpo_doctor_reports.severity import severity_class
from grpo_doctor_reports.whatif import together_words

_NARROWEST = 40
_NOTES = 5
_WIDEST = 120
_WORK, _TRANSFER, _WAIT = "█", "▒", "░"
_BLOCKS = "▁▂▃▄▅▆▇█"
_EIGHTHS = ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")
_SEVERITY_STYLES = {"high": "bold red", "medium": "bold yellow", "low": "bold", "info": "bold"}
_INDENT = 4
_EVIDENCE, _FEW = 2, 5  # numbers under a finding; of more findings than a few only one
_ALSO = 5  # in one line each; the rest is counted, so that forty rules stay a screenful
_IDS = 12
_WANTED = 2
_SPARKS, _NUMBERS = 40, 32  # a curve in blocks, and the numbers next to it


def render_text(document: AnyDocument, *, width: int, color: bool) -> str:
    """Return the digest as text that ends with a newline.

    Args:
        document: what `grpo-doctor report --json` prints.
        width: columns to use; held between 40 and 120.
        color: whether to use ANSI colors (24 bit); without it no escape sequence is written.
    """
    report = read_report(document)
    return as_text(
        lambda columns: _body(report, columns),
        width=max(_NARROWEST, min(_WIDEST, width)),
        colors="truecolor" if color else None,
    )


def _body(report: ReportDocument, width: int) -> Iterator[RenderableType]:
    yield Text(_head(report), style="dim")
    if losses := digest.losses(report):
        yield Text("\n! Incomplete recording: " + " ".join(losses), style="bold yellow")
    style = "" if report.summary.tone == "unjudged" else "bold"
    yield Text("\n" + digest.verdict(report) + "\n", style=style)
    for stall in digest.stalls(report):
        yield Text(stall, style="bold red")
    yield Text(digest.key_numbers_line(report) + "\n")
    yield from _step_bar(report, width)
    yield from _evaluation(report, width)
    of_trajectories = trajectory_words.sentences(report.trajectories)
    for line in [*memory_sentences(report.memory), *of_trajectories]:
        yield sentence(line, width=width, style="dim")
    yield from _findings(report, width)
    yield Text("")
    open_questions = [f"Open: {line}" for line in report.summary.not_judged[:_NOTES]]
    notes = [f"Note: {note}" for note in report.run.notes[:_NOTES]]
    for line in [*_checks(report), *open_questions, *notes]:
        yield sentence(line, width=width, style="dim")


def _head(report: ReportDocument) -> str:
    run = report.run
    tool = f"{report.tool.name or 'grpo-doctor'} {report.tool.version}".strip()
    facts = [tool, run.id, digest.framework_words(run), run.source]
    return " · ".join(filter(None, dict.fromkeys(facts)))


def _step_bar(report: ReportDocument, width: int) -> Iterator[RenderableType]:
    parts = digest.step_bar(report)
    if not parts:
        yield Text(digest.bar_sentence(parts))
        return
    name_width = max(len(part.phase) for part in parts)
    full = max(8, min(40, width - min(name_width, 20) - 36))
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column(max_width=20, no_wrap=True, overflow="ellipsis")
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True, style="dim")
    scale = full / max(part.fraction for part in parts)
    for part in parts:
        table.add_row(
            Text(part.phase),
            _bar(part, scale),
            formatting.seconds(part.seconds),
            formatting.share(part.fraction),
            _notes_of(part),
        )
    yield table
    moves = f"  {_TRANSFER} transfer" if any(part.transfer_seconds > 0 for part in parts) else ""
    waits = f"  {_WAIT} {words}" if (words := digest.wait_words(parts)) else ""
    yield Text(f"{_WORK} work{moves}{waits}", style="dim")


def _notes_of(part: digest.Bar) -> str:
    wait = [f"wait {formatting.seconds(part.wait_seconds)}"] if part.wait_seconds > 0 else []
    return ", ".join([*wait, *["host time"] * part.host_time])


def _bar(part: digest.Bar, scale: float) -> Text:
    """A bar as long as the share, to an eighth of a cell: nothing is drawn longer than it is."""
    cells = part.fraction * scale
    work = cells * part.work_seconds / part.seconds
    moving = round(work + cells * part.transfer_seconds / part.seconds) - round(work)
    waiting = round(cells) - round(work) - moving
    if moving + waiting <= 0:
        return Text(_eighths(cells), style=color_of(part.phase))
    bar = _WORK * round(work) + _TRANSFER * moving + _WAIT * waiting
    return Text(bar, style=color_of(part.phase))


def _eighths(cells: float) -> str:
    full, eighths = divmod(round(8 * cells), 8)
    return _WORK * full + _EIGHTHS[eighths]


def _evaluation(report: ReportDocument, width: int) -> Iterator[RenderableType]:
    """How evaluations went, under the metric of training that they evaluate."""
    evaluation, series = report.views.evaluation, report.views.metrics.series
    best = best_words(evaluation) if evaluation else ""
    if evaluation is None or not best:
        return
    trained = trained_metric(evaluation)
    curves = [(trained, series[trained])] if known(series.get(trained, [])) else []
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    for name, values in (*curves, ("evaluation", evaluation.values)):
        first, last = from_to(values)
        table.add_row(name, first, sparkline(values, min(_SPARKS, width - _NUMBERS)), last)
    yield Text("")
    yield table
    yield Text(best.capitalize() + ".", style="dim")


def sparkline(values: Numbers, width: int) -> str:
    """Return a curve in at most `width` blocks, each the mean of its neighbors."""
    numbers = known(values)
    edges = bin_edges(len(numbers), min(width, len(numbers)))
    means = [fmean(numbers[start:end]) for start, end in edges]
    low, span = min(means), max(means) - min(means)
    top = len(_BLOCKS) - 1
    return "".join(_BLOCKS[round(top * (mean - low) / span) if span else 0] for mean in means)


def _findings(report: ReportDocument, width: int) -> Iterator[RenderableType]:
    shown = report.findings[: digest.TOP_FINDINGS]
    if not shown:
        yield Text("\nNo findings.")
        return
    evidence = _EVIDENCE if len(report.findings) <= _FEW else 1
    for finding in shown:
        yield from _finding(finding, evidence, width)
    if words := together_words(report.whatif):
        yield Text(f"\n{words}", style="bold")
    more = report.findings[digest.TOP_FINDINGS :]
    if more:
        yield Text("\nAlso found:")
    for finding in more[:_ALSO]:
        yield _indented(_one_line(finding, width - _INDENT))
    unlisted = more[_ALSO:]
    if unlisted:
        ids = ", ".join(finding.id for finding in unlisted[:_IDS])
        yield _indented(Text(f"and {formatting.number(len(unlisted))} more: {ids}", style="dim"))


def _finding(finding: FindingEntry, evidence: int, width: int) -> Iterator[RenderableType]:
    line = Text("\n")
    line.append(
        f"{finding.id} {finding.severity}", style=_SEVERITY_STYLES[severity_class(finding.severity)]
    )
    line.append(f"  {finding.title}")
    yield line
    for item in finding.evidence[:evidence]:
        yield _indented(Text(f"{item.text}: {digest.measured(item)}", style="dim"))
    cost = digest.cost_beside_gain(finding)
    if cost:
        yield _indented(Text(cost))
    fix, step = digest.main_fix(finding), digest.main_step(finding)
    remedy = fix or step
    if remedy is None:
        return
    if fix is not None:
        lines = f"fix   {digest.fix_line(fix)}".replace("\n", "\n      ")
        yield Command(indent(lines, " " * _INDENT))
    elif step is not None:
        yield sentence(f"next  {step.text}", width=width, indent=_INDENT)
    safety = digest.safety_words(remedy.safety)
    gain = ", ".join(filter(None, [digest.gain_sentence(remedy.predicted), safety]))
    yield _indented(Text(f"gain  {gain.removeprefix('gain ')}"))


def _one_line(finding: FindingEntry, width: int) -> Text:
    """A finding with its cost and gain on one line: the title gives way, the numbers stay."""
    gain = digest.main_gain(finding)
    cost = [f"costs {formatting.share(finding.cost.share)}"] if finding.cost.share else []
    numbers = ", ".join([*cost, *([f"fix {gain.value}"] if gain else [])])
    title = Text(f"{finding.id} {finding.title}", no_wrap=True, overflow="ellipsis")
    title.truncate(max(12, width - len(numbers) - 2), overflow="ellipsis")
    return title.append(f"  {numbers}", style="bold") if numbers else title


def _indented(text: Text) -> Padding:
    return Padding(text, (0, 0, 0, _INDENT))


def _checks(report: ReportDocument) -> list[str]:
    """What the rules came to, in sentences; what was skipped, with what it lacked."""
    unasked = sum(check.left_out for check in report.not_applicable)
    counts = [
        formatting.count(len(report.findings), "finding"),
        f"{formatting.count(len(report.passed), 'check')} passed",
        f"{len(report.not_run):,} skipped (missing data)",
        f"{len(report.not_applicable) - unasked:,} not applicable",
        *([f"{unasked:,} deselected"] if unasked else []),
    ]
    missing = list(
        dict.fromkeys(
            text for check in report.not_run for text in check.signals or [check.missing] if text
        )
    )
    more = len(missing) - _WANTED
    return [
        " · ".join(counts),
        *(f"Missing: {_in_brackets(text)}." for text in missing[:_WANTED]),
        *([f"{formatting.count(more, 'more input')} missing; see the page or --json."]
          if more > 0 else []),
        *(f"{check.id} failed; please report this bug: {digest.error_words(check)}"
          for check in report.rule_errors),
    ]  # fmt: skip


def _in_brackets(signal: str) -> str:
    """`GPU samples: record on its machine` as `GPU samples (record on its machine)`."""
    name, colon, remedy = signal.partition(": ")
    return f"{name} ({remedy})" if colon else signal


def memory_sentences(memory: MemoryCompared) -> list[str]:
    """Return what was measured and predicted of memory, and what follows from it."""
    size = formatting.size
    if memory.measured_bytes is None or memory.predicted_bytes is None:
        outside = memory.reason.startswith("not modeled")
        return [f"Memory: {memory.reason}."] if outside else []
    lines = [_peak(memory)]
    if memory.row_tokens and memory.longest_row_tokens and memory.longest_bytes:
        longest = formatting.number(memory.longest_row_tokens)
        needed = size(memory.longest_bytes)
        lines.append(f"At the maximum sequence length ({longest} tokens) it would need {needed}.")
    fitting = [_with_size(item, memory.measured_bytes) for item in memory.advice if item.fits]
    if fitting:
        lines.append(f"Measured usage leaves room for one of: {', '.join(fitting)}.")
    refused = [item.spelling for item in memory.advice if item.fits_by_ledger and not item.fits]
    if refused:
        names = ", ".join(refused)
        lines.append(f"Predicted to fit, but too large judging by measured usage: {names}.")
    return lines


def _with_size(item: MemoryAdvice, now: int) -> str:
    more = item.bytes is None or item.bytes > now
    return f"{item.spelling} ({formatting.size(item.bytes) if more else 'no more than now'})"


def _peak(memory: MemoryCompared) -> str:
    size = formatting.size
    rows = f", at {memory.row_tokens} tokens per sequence" if memory.row_tokens else ""
    low, high = memory.low_bytes or 0, memory.high_bytes or 0
    wrong = not low <= (memory.measured_bytes or 0) <= high
    return (
        f"Memory, first step: rank {memory.rank} peaked at {size(memory.measured_bytes)} of "
        f"{size(memory.capacity_bytes)} (predicted: {size(memory.predicted_bytes)}, "
        f"{size(low)} to {size(high)}{rows})"
        + (": the prediction is wrong for this run." * wrong or ".")
    )
