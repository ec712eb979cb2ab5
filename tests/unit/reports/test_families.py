from __future__ import annotations

from typing import Any

from grpo_doctor_reports.digest import families, numbered, severities
from grpo_doctor_reports.schema.findings import FindingEntry
from grpo_doctor_reports.schema.report import read_report


def findings_of(*rows: tuple[str, str, str]) -> list[FindingEntry]:
    listed: list[dict[str, Any]] = [
        {"id": rule, "family": family, "severity": severity} for rule, family, severity in rows
    ]
    return read_report({"schema": 1, "findings": listed}).findings


def of(*rows: tuple[str, str, str]) -> list[tuple[str, FindingEntry]]:
    return numbered(findings_of(*rows))


def test_a_family_that_is_not_ours_is_other() -> None:
    for name in ('"><x', ""):
        assert list(families(of(("GD003", name, "high")))) == ["Other"]


def test_severities_that_occur_are_counted_gravest_first() -> None:
    rows = (("a", "", "low"), ("b", "", "high"), ("c", "", "low"), ("d", "", "made up"))
    assert severities(findings_of(*rows)) == [("high", 1), ("low", 2), ("info", 1)]
