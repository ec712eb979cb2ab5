"""The verdict as terminal text: its first line names the rank and the reason."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from grpo_doctor_reports.console import Command, as_text, sentence, unbroken
from grpo_doctor_reports.hang import words
from grpo_doctor_reports.schema import AnyDocument
from grpo_doctor_reports.schema.attach import AttachDocument, Fix, read_verdict

_NARROWEST: Final = 20
_WIDEST: Final = 110
_ITEMS: Final = 12  # of one source; the page and the JSON have the rest
_ROWS: Final = 16
_STYLES: Final = {
    "healthy": "bold green",
    "slow": "bold yellow",
    "stuck": "bold red",
    "dead": "bold red",
}


def hang_text(document: AnyDocument, width: int, color: bool) -> str:
    """Return the verdict as text that ends with a newline.

    The first line is the whole verdict however long it is, so that `head -1` has it; commands to
    copy are never broken either.

    Args:
        document: what `attach --json` prints.
        width: columns to use for the rest; held between 20 and 110.
        color: whether to use ANSI colors; without it no escape sequence is written.
    """
    visit = read_verdict(document)
    return as_text(
        lambda columns: _lines(visit, columns),
        width=max(_NARROWEST, min(_WIDEST, width)),
        colors="standard" if color else None,
    )


def _lines(visit: AttachDocument, width: int) -> Iterator[RenderableType]:
    yield Command(words.headline(visit), style=_STYLES[words.state(visit)])
    yield Text(" · ".join(words.facts(visit)), style="dim")
    yield from _section("Why", words.why(visit), width)
    can_go_on = [visit.verdict.can_go_on] if visit.verdict.can_go_on else []
    yield from _section(words.CAN_IT_GO_ON, can_go_on, width)
    yield from _what_to_do(visit)
    yield from _how_to_confirm(visit, width)
    yield from _evidence(visit, width)
    yield from _processes(visit, width)
    yield from _hosts(visit, width)
    yield from _not_seen(visit, width)
    if cost := words.cost(visit):
        yield Text(f"\n{cost}", style="dim")


def _section(title: str, lines: Sequence[str], width: int) -> Iterator[RenderableType]:
    if not lines:
        return
    yield _title(title)
    for line in lines:
        yield sentence(line, width=width, indent=2)


def _how_to_confirm(visit: AttachDocument, width: int) -> Iterator[RenderableType]:
    if visit.verdict.confirm:
        yield _title("How to confirm")
        for line in visit.verdict.confirm:
            is_command = words.is_command(line)
            yield Command(f"  {line}") if is_command else sentence(line, width=width, indent=2)


def _title(text: str) -> Text:
    return Text(f"\n{text}", style="bold")


def _what_to_do(visit: AttachDocument) -> Iterator[RenderableType]:
    fixes = visit.verdict.fixes
    if not fixes:
        return
    yield _title("What to do" if words.healthy(visit) else "What to do now")
    for number, fix in enumerate(fixes, 1):
        yield from _fix(fix, f"{number}. " if len(fixes) > 1 else "")


def _fix(fix: Fix, number: str) -> Iterator[RenderableType]:
    table = Table.grid()
    table.add_column(no_wrap=True)
    table.add_column()
    table.add_row(f"  {number}", Text(unbroken(fix.text)))
    yield table
    if fix.spelling:
        yield Command(" " * (len(number) + 6) + fix.spelling)


def _evidence(visit: AttachDocument, width: int) -> Iterator[RenderableType]:
    groups = words.evidence(visit)
    if not groups:
        return
    yield _title("Evidence")
    rows = []
    for source, items in groups:
        texts = [words.item_words(item) for item in items]
        rows += _shown([Row((source * (not at), text)) for at, text in enumerate(texts)], _ITEMS)
    yield from laid_out((Column(0, "dim"), Column()), rows, width)


def _shown(rows: Sequence[Row], most: int) -> list[Row]:
    """At most so many rows, and how many more there are."""
    if len(rows) <= most:
        return list(rows)
    empty = [""] * (len(rows[0].cells) - 1)
    return [
        *rows[:most],
        Row((*empty, f"{len(rows) - most} more on the page and in --json"), "dim"),
    ]


def _processes(visit: AttachDocument, width: int) -> Iterator[RenderableType]:
    rows = words.rows_of(visit)
    if not rows and not visit.job.ranks_missing:
        return
    yield _title("Processes")
    hosts = (Column(24),) if visit.job.hosts else ()
    columns = (Column(26), *hosts, Column(0), Column())
    shown = []
    for row in rows:
        waits = f"{'; ' if row.frame else ''}waits for {row.waiting_for}" if row.waiting_for else ""
        host = [row.hosts] if visit.job.hosts else []
        cells = (row.name, *host, row.state, f"{row.frame}{waits}")
        shown.append(Row(cells, "bold" if row.culprit else ""))
    shown = _shown(shown, _ROWS)
    if visit.job.ranks_missing:
        ranks, empty = words.ranks_named(visit.job.ranks_missing), [""] if visit.job.hosts else []
        shown.append(Row((ranks, *empty, "missing", words.not_seen(visit))))
    yield from laid_out(columns, shown, width)


def _hosts(visit: AttachDocument, width: int) -> Iterator[RenderableType]:
    hosts = visit.job.hosts
    if not hosts:
        return
    yield _title("Hosts")
    rows = _shown([Row((host.name, words.ranks_of(host))) for host in hosts], _ROWS)
    yield from laid_out((Column(40), Column()), rows, width)


def _not_seen(visit: AttachDocument, width: int) -> Iterator[RenderableType]:
    if not visit.problems:
        return
    yield _title("What could not be inspected")
    for problem in visit.problems[:_ITEMS]:
        text = " ".join(filter(None, [problem.what, problem.remedy]))
        yield sentence(text, width=width, indent=2)
    if len(visit.problems) > _ITEMS:
        yield Text(f"  {len(visit.problems) - _ITEMS} more in --json", style="dim")


_SIDE_BY_SIDE: Final = 60


@dataclass(frozen=True, slots=True)
class Column:
    """How a column looks. `widest` 0: as wide as it needs to be, and never broken."""

    widest: int | None = None
    style: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """A row; the last cell is the one that may be long."""

    cells: tuple[str, ...]
    style: str = ""


def laid_out(
    columns: Sequence[Column], rows: Sequence[Row], width: int
) -> Iterator[RenderableType]:
    """The rows as they fit into so many columns of a terminal."""
    if width >= _SIDE_BY_SIDE:
        yield _table(columns, rows)
        return
    for row in rows:
        if head := "  ".join(cell for cell in row.cells[:-1] if cell):
            yield Padding(Text(head, style=row.style or columns[0].style), (0, 0, 0, 2))
        yield Padding(Text(row.cells[-1], style=row.style), (0, 0, 0, 4))


def _table(columns: Sequence[Column], rows: Sequence[Row]) -> Table:
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    for column in columns:
        is_firm = column.widest == 0
        table.add_column(
            max_width=None if is_firm else column.widest, no_wrap=is_firm, style=column.style
        )
    for row in rows:
        head, *tail = row.cells
        table.add_row(Text(f"  {head}"), *map(Text, tail), style=row.style)
    return table
