"""`grpo-doctor rule`, and what `report` lets one choose."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from grpo_doctor.cli import main
from grpo_doctor.findings.rules import ALL
from grpo_doctor.launches.rules import load
from grpo_doctor.trace.write import write_trace
from tests.unit.findings.example_runs import offloaded


@pytest.fixture
def trace(tmp_path: Path) -> str:
    path = tmp_path / "trace.json"
    write_trace(offloaded().build(), path)
    return str(path)


def test_every_rule_is_listed(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["rule"]) == 0
    listed = capfd.readouterr().out
    assert all(f"{rule.RULE.id}  " in listed for rule in ALL)


def test_one_rule_is_explained(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["rule", "needless-offload"]) == 0
    text = capfd.readouterr().out
    for heading in ("GD001: Offload costs", "Why it costs", "When it is wrong", "References"):
        assert heading in text
    assert "https://www.deepspeed.ai/tutorials/zero-offload/" in text
    assert "<!--" not in text


def test_rules_as_json(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["rule", "GD004", "--json"]) == 0
    (entry,) = json.loads(capfd.readouterr().out)["rules"]
    assert (entry["id"], entry["family"]) == ("GD004", "system")


def test_a_report_of_some_rules(trace: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["report", trace, "--json", "--select", "GD001,GD004", "--ignore", "GD004"]) == 0
    document = json.loads(capfd.readouterr().out)
    assert [f["id"] for f in document["findings"]] == ["GD001"]
    left_out = {n["id"]: n["reason"] for n in document["not_applicable"]}
    assert left_out["GD004"] == "skipped by --ignore"
    assert left_out["GD002"] == "not in --select"


@pytest.mark.parametrize(("severity", "code"), [("high", 0), ("medium", 6), ("info", 6)])
def test_a_grave_finding_fails_where_asked(
    trace: str, severity: str, code: int, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", trace, "--json", "--fail-on", severity]) == code
    assert json.loads(capfd.readouterr().out)["findings"]


def test_a_price_is_an_amount(trace: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["report", trace, "--json", "--price", "2.5EUR"]) == 0
    cost = json.loads(capfd.readouterr().out)["findings"][0]["cost"]
    assert cost["currency"] == "EUR"
    assert cost["money_per_day"] == pytest.approx(cost["gpu_hours_per_day"] * 2.5, rel=1e-3)


def test_a_family_of_several_is_listed_and_nothing_else(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["rule", "visibility"]) == 0
    listed = capfd.readouterr().out.splitlines()
    assert [line[:5] for line in listed if line.startswith("GD")] == ["GD005", "GD075"]
    assert listed[-1] == "`grpo-doctor rule ID` explains a rule."


@pytest.mark.parametrize("word", ["GL001", "gl1", "one-process-many-gpus"])
def test_a_rule_of_launches_is_explained_too(word: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["rule", word]) == 0
    text = capfd.readouterr().out
    assert text.startswith("GL001: One process sees several GPUs.")
    assert "For launches of: " in text


def test_every_rule_of_launches_is_listed(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["rule", "launch", "--json"]) == 0
    listed = json.loads(capfd.readouterr().out)["rules"]
    assert [entry["id"] for entry in listed] == [rule.id for rule in load()]
    assert main(["rule"]) == 0
    out = capfd.readouterr().out
    assert all(f"{entry['id']}  launch" in out for entry in listed)
