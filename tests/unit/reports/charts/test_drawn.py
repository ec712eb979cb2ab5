"""Charts at the edges of what they draw, as they were when somebody last looked."""

from __future__ import annotations

from tests.unit.reports.recorded import check


def test_charts_are_drawn_as_recorded() -> None:
    check("charts/drawn.txt")
