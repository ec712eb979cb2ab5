from __future__ import annotations

from typing import Any

from grpo_doctor_reports.document import read_document
from grpo_doctor_reports.families import families, severities
from grpo_doctor_reports.finding_model import Finding


def findings_of(*rows: tuple[str, str, str]) -> list[Finding]:
    listed: list[dict[str, Any]] = [
        {"id": rule, "family": family, "severity": severity} for rule, family, severity in rows
    ]
    return read_document({"schema": 1, "findings": listed}).findings


def test_families_come_in_the_order_of_their_gravest_finding() -> None:
    groups = families(
        findings_of(
            ("GD003", "data", "high"), ("GD004", "rollout", "high"), ("GD005", "data", "low")
        )
    )
    assert [(title, [f.id for f in members]) for title, members in groups.items()] == [
        ("Data", ["GD003", "GD005"]),
        ("Rollout", ["GD004"]),
    ]


def test_a_family_that_is_not_ours_is_other() -> None:
    for name in ('"><x', ""):
        assert list(families(findings_of(("GD003", name, "high")))) == ["Other"]


def test_severities_that_occur_are_counted_gravest_first() -> None:
    rows = (("a", "", "low"), ("b", "", "high"), ("c", "", "low"), ("d", "", "made up"))
    assert severities(findings_of(*rows)) == [("high", 1), ("low", 2), ("info", 1)]
