from __future__ import annotations

from itertools import chain, product
from typing import Any

import pytest

from grpo_doctor_reports.digest import measured, numbered
from grpo_doctor_reports.errors import DocumentError, ReportError
from grpo_doctor_reports.schema.part import _as_it_is, _finite, _integer, _row
from grpo_doctor_reports.schema.report import read_report
from tests.demo_reports import DEMOS


@pytest.mark.parametrize(("document", "message"), [
    ({"schema": 2}, "schema 2.*draws schema 1.*Upgrade grpo-doctor"),
    ({"schema": 0}, "schema 0.*Write it again"),
    ({}, "no schema number"),
    ({"schema": "1"}, "no schema number"),
    ({"schema": True}, "no schema number"),
    ([], "not a JSON object"),
])  # fmt: skip
def test_another_schema_is_refused_with_what_to_do(document: Any, message: str) -> None:
    with pytest.raises(ReportError, match=message):
        read_report(document)


@pytest.mark.parametrize(("part", "message"), [
    ({"findings": {}}, r"findings: Expected `array`, got `object`"),
    ({"findings": [{"title": 3}]}, r"findings\[0\]\.title: Expected `str`, got `int`"),
    ({"run": {"loss": {"truncated": 1}}}, r"run\.loss\.truncated: Expected `bool`, got `int`"),
    ({"summary": {"steps": "3"}}, r"summary\.steps: Expected `int`, got `str`"),
    ({"views": {"timeline": []}}, r"views\.timeline: Expected `object`, got `array`"),
    ({"views": {"heatmap": {"ranks": [0], "steps": [1], "step_seconds": [["x"]]}}},
        r"views\.heatmap\.step_seconds\[0\]\[0\]: Expected `float \| null`, got `str`"),
])  # fmt: skip
def test_a_damaged_part_is_named(part: dict[str, Any], message: str) -> None:
    with pytest.raises(DocumentError, match=message):
        read_report({"schema": 1, **part})


def test_every_member_may_be_null() -> None:
    document = DEMOS["slow"]()

    def without(value: Any) -> Any:
        return dict.fromkeys(value) if isinstance(value, dict) else None

    for part in ("tool", "run", "summary", "views"):
        read_report({**document, part: without(document[part])})
    finding = without(document["findings"][0])
    assert read_report({**document, "findings": [finding]}).findings[0].fixes == []


def test_anchors_are_rule_ids_unique_and_harmless() -> None:
    ids = ["GD001", "GD001", "facts", 'x" onclick="y', "GD002"]
    report = read_report({"schema": 1, "findings": [{"id": rule} for rule in ids]})
    anchors = [anchor for anchor, _ in numbered(report.findings)]
    assert anchors == ["GD001", "GD001-2", "finding-3", "finding-4", "GD002"]


def test_evidence_of_any_type_is_shown() -> None:
    values = [20.6, "ZeRO-2", None, True, ["a", 1]]
    evidence = [{"text": "t", "value": value, "unit": "s"} for value in values]
    report = read_report({"schema": 1, "findings": [{"evidence": evidence}]})
    shown = [measured(item) for item in report.findings[0].evidence]
    assert shown == ["20.6 s", "ZeRO-2 s", "s", "true s", '["a", 1] s']


@pytest.mark.parametrize("tame", [_finite, _integer, _as_it_is])
@pytest.mark.parametrize("keeps_nulls", [True, False])
def test_a_row_is_as_its_numbers_are_one_by_one(tame: Any, keeps_nulls: bool) -> None:
    odd = (float("nan"), float("inf"), -float("inf"), None, True, "x", 2**63, 2**63 + 1, 10**400)
    numbers = (1, 2.5, -3, 5.0, -0.0, 1e300, *odd)
    for row in chain([()], product(numbers), product(numbers, repeat=2)):
        tamed = [tame(value) for value in row]
        expected = [value for value in tamed if keeps_nulls or value is not None]
        assert repr(_row(row, tame, keeps_nulls)) == repr(expected)
