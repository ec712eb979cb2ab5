"""Rows of words: columns side by side, or below each other where a terminal is too narrow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

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
