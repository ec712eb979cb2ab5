"""All that is drawn of verdicts, as it was when somebody last looked."""

from __future__ import annotations

from tests.unit.reports.recorded import check


def test_verdicts_are_drawn_as_recorded() -> None:
    check("hang/drawn.txt")
