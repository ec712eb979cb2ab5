"""The comparison as terminal text: its first line is the verdict."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from grpo_doctor_reports import formatting
from grpo_doctor_reports.compare import words
from grpo_doctor_reports.console import as_text
from grpo_doctor_reports.schema import AnyDocument
from grpo_doctor_reports.schema.compare import ComparisonDocument, read_comparison

_NARROWEST: Final = 60
_WIDEST: Final = 110
_STYLES: Final = {"faster": "green", "slower": "red", "not enough evidence": "yellow"}
_STATES: Final = {"gone": "green", "new": "red"}


def comparison_text(document: AnyDocument, width: int, color: bool) -> str:
    """Return the comparison as text that ends with a newline.

    Args:
        document: what `compare --json` prints.
        width: columns to use; held between 60 and 110.
        color: whether to use ANSI colors; without it no escape sequence is written.

    Raises:
        DocumentError: the document has another schema, or a part of the wrong type.
    """
    comparison = read_comparison(document)
    return as_text(
        lambda _: _lines(comparison),
        width=max(_NARROWEST, min(_WIDEST, width)),
        colors="standard" if color else None,
    )


def _lines(comparison: ComparisonDocument) -> Iterator[RenderableType]:
    yield Text(comparison.verdict, style="bold")
    for caution in comparison.cautions:
        yield Text(f"  note: {caution}", style="yellow")
    yield from _settings(comparison)
    yield Text("")
    yield _totals(comparison)
    yield from _predictions(comparison)
    if comparison.phases:
        yield Text("")
        yield _phases(comparison)
    yield Text(f"\n{words.metrics_sentence(comparison)}")
    yield from _findings(comparison)


def _settings(comparison: ComparisonDocument) -> Iterator[RenderableType]:
    if not comparison.settings:
        yield Text("\nNo difference among the settings that both runs recorded.")
        return
    yield Text("\nChanged settings", style="bold")
    shown, more = words.shown_settings(comparison.settings)
    for setting in shown:
        yield _indented(words.setting_change(setting))
    if more:
        yield _indented(f"{len(more)} more: see --html or --json")
    if reason := words.not_predicted(comparison.fixes):
        yield _indented(reason)


def _totals(comparison: ComparisonDocument) -> Table:
    table = _table("", "before", "after", "change (95% interval)")
    rows = (("step", comparison.step_time), ("per 1,000 tokens", comparison.per_token))
    for name, change in rows:
        style = _STYLES.get(change.verdict, "")
        table.add_row(
            name, _s(change.before), _s(change.after), Text(words.change(change), style=style)
        )
    return table


def _predictions(comparison: ComparisonDocument) -> Iterator[RenderableType]:
    for fix in words.predicted(comparison.fixes):
        yield Text("\nPredicted and measured", style="bold")
        yield _indented(f"predicted {words.prediction(fix)} step time")
        measured = formatting.signed_percent(fix.measured_pct)
        yield _indented(f"measured  {measured}: {words.outcome(fix)}")


def _phases(comparison: ComparisonDocument) -> Table:
    table = _table("phase", "before", "after", "change (95% interval)")
    for phase in comparison.phases:
        shown = f"{'+' if phase.change_s > 0 else ''}{_s(phase.change_s)}"
        if phase.low_s is not None:
            shown += f" ({_s(phase.low_s)} to {_s(phase.high_s)})"
        style = _STYLES.get(phase.verdict, "")
        table.add_row(phase.phase, _s(phase.before_s), _s(phase.after_s), Text(shown, style=style))
    return table


def _findings(comparison: ComparisonDocument) -> Iterator[RenderableType]:
    if not comparison.findings:
        return
    yield Text("\nFindings", style="bold")
    width = max(6, *(len(finding.state) + 2 for finding in comparison.findings))
    for finding in comparison.findings:
        line = Text(f"{finding.state:<{width}}", style=_STATES.get(finding.state, "dim"))
        yield Padding(line.append(f"{finding.id} {finding.title}", style="default"), (0, 0, 0, 2))


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for number, name in enumerate(columns):
        table.add_column(name, justify="right" if number in (1, 2) else "left")
    return table


def _indented(text: str) -> Padding:
    return Padding(Text(text), (0, 0, 0, 2))


def _s(value: float | None) -> str:
    return formatting.seconds(value)
