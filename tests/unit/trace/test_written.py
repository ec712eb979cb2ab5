"""What is written of a recording changes only where that is meant."""

from __future__ import annotations

from tests.unit.trace.written import RECORDED, written


def test_lines_are_those_that_were_written_down() -> None:
    lines = RECORDED.read_text().splitlines()
    assert written() == lines, "python -m tests.unit.trace.written"
