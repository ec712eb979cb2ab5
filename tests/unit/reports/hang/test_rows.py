from __future__ import annotations

import pytest
from rich.console import Console

from grpo_doctor_reports.hang.terminal import Column, Row, laid_out

COLUMNS = (Column(), Column())
ROWS = (Row(("rank 0", "waits in reward")), Row(("", "and in train")))
LEAST = 60  # columns, from which a table has room


@pytest.mark.parametrize(("width", "lines"), [(LEAST, 2), (LEAST + 1, 2), (LEAST - 1, 3)])
def test_below_the_width_of_a_table_the_last_cell_has_its_own_line(width: int, lines: int) -> None:
    console = Console(width=width, color_system=None)
    with console.capture() as capture:
        console.print(*laid_out(COLUMNS, ROWS, width), sep="")
    shown = [line for line in capture.get().splitlines() if line.strip()]
    assert len(shown) == lines
    assert [line.strip() for line in shown][-1].endswith("and in train")


def test_a_row_without_a_style_begins_in_that_of_the_first_column() -> None:
    columns = (Column(style="green"), Column())
    for row, first in ((Row(("rank 0", "waits")), "32"), (Row(("rank 0", "waits"), "bold"), "1")):
        console = Console(width=40, color_system="standard", force_terminal=True)
        with console.capture() as capture:
            console.print(*laid_out(columns, [row], 40), sep="")
        assert f"\x1b[{first}mrank 0" in capture.get()
