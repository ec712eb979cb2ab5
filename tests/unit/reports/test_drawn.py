"""All that is drawn of reports, as it was when somebody last looked."""

from __future__ import annotations

from tests.unit.reports.recorded import check


def test_reports_are_drawn_as_recorded() -> None:
    check("drawn.txt")


def test_documents_are_told_as_recorded() -> None:
    check("said.txt")
