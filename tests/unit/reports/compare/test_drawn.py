"""All that is drawn of comparisons, as it was when somebody last looked."""

from __future__ import annotations

from tests.unit.reports.recorded import check


def test_comparisons_are_drawn_as_recorded() -> None:
    check("compare/drawn.txt")
