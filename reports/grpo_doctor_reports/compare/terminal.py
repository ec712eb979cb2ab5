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
from grpo_doctor_reports.compare.document import read_comparison
from grpo_doctor_reports.compare.model import Comparison
from grpo_doctor_reports.console import as_text
from grpo_doctor_reports.schema import AnyDocument
from grpo_doctor_reports.schema.compare import Change

_NARROWEST: Final = 60
_WIDEST: Final = 110
_ROWS: Final = 12  # of settings and metrics; the page and the JSON have the rest
_STYLES: Final = {"faster": "green", "slower": "red", "not enough evidence": "yellow"}
_STATES: Final = {"gone": "green", "new": "red"}


def comparison_text(document: AnyDocument, width: int, color: bool) -> str:
    """Return the comparison as text that ends with a newline.

    Args:
        document: what `compare --json` prints.
        width: columns to use; held between 60 and 110.
        color: whether to use ANSI colours; without it no escape sequence is written.

    Raises:
        DocumentError: the document has another schema, or a part of the wrong type.
    """
    comparison = read_comparison(document)
    return as_text(
        lambda _: _lines(comparison),
        width=max(_NARROWEST, min(_WIDEST, width)),
        colors="standard" if color else None,
    )


def _lines(one: Comparison) -> Iterator[RenderableType]:
    yield Text(one.verdict, style="bold")
    for caution in one.cautions:
        yield Text(f"  note: {caution}", style="yellow")
    yield Text("")
    yield _totals(one)
    if one.phases:
        yield Text("")
        yield _phases(one)
    yield from _fixes(one)
    yield from _settings(one)
    yield Text(f"\n{words.metrics_sentence(one)}")
    yield from _findings(one)


def _totals(one: Comparison) -> Table:
    table = _table("", "before", "after", "change (95% interval)")
    for name, change in (("step", one.step_time), ("per 1,000 tokens", one.per_token)):
        table.add_row(name, _s(change.before), _s(change.after), _changed(change))
    return table


def _phases(one: Comparison) -> Table:
    table = _table("phase", "before", "after", "change (95% interval)")
    for phase in one.phases:
        shown = f"{'+' if phase.change_s > 0 else ''}{_s(phase.change_s)}"
        if phase.low_s is not None:
            shown += f" ({_s(phase.low_s)} to {_s(phase.high_s)})"
        style = _STYLES.get(phase.verdict, "")
        table.add_row(phase.phase, _s(phase.before_s), _s(phase.after_s), Text(shown, style=style))
    return table


def _fixes(one: Comparison) -> Iterator[RenderableType]:
    for fix in one.fixes:
        yield Text("\nPredicted and measured", style="bold")
        for setting in fix.settings[:_ROWS]:
            yield _indented(setting)
        if len(fix.settings) > _ROWS:
            yield _indented(f"and {len(fix.settings) - _ROWS} more")
        yield _indented(f"predicted {words.prediction(fix)}")
        measured = formatting.signed_percent(fix.measured_pct)
        yield _indented(f"measured  {measured}: {words.held(fix)}")


def _settings(one: Comparison) -> Iterator[RenderableType]:
    rows = [s for s in one.settings if s.known or not one.fixes]
    if not one.settings:
        yield Text("\nNothing was set differently, as far as it was recorded.")
        return
    yield Text("\nSet differently", style="bold")
    for setting in rows[:_ROWS]:
        before, after = setting.before or "not set", setting.after or "not set"
        yield _indented(f"{setting.name}: {before} to {after}")
    if len(one.settings) > len(rows[:_ROWS]):
        yield _indented(f"and {len(one.settings) - len(rows[:_ROWS])} more (--json has all)")


def _findings(one: Comparison) -> Iterator[RenderableType]:
    if not one.findings:
        return
    yield Text("\nFindings", style="bold")
    for finding in one.findings:
        line = Text(f"{finding.state:<6}", style=_STATES.get(finding.state, "dim"))
        yield Padding(line.append(f"{finding.id} {finding.title}", style="default"), (0, 0, 0, 2))


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for number, name in enumerate(columns):
        table.add_column(name, justify="right" if number in (1, 2) else "left")
    return table


def _indented(text: str) -> Padding:
    return Padding(Text(text), (0, 0, 0, 2))


def _changed(change: Change) -> Text:
    return Text(words.change(change), style=_STYLES.get(change.verdict, ""))


def _s(value: float | None) -> str:
    return formatting.seconds(value)
