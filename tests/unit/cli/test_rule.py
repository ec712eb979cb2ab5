"""`grpo-doctor rule`; which rules `report` runs, what a GPU costs, and when to fail."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from grpo_doctor.cli import main
from grpo_doctor.cli.choosing import add_rule_options, price_of, selection_of
from grpo_doctor.errors import UsageError
from grpo_doctor.findings.rules import ALL
from grpo_doctor.launches.rules import load
from grpo_doctor.trace.write import write_trace
from tests.unit.cli.attached import Captured
from tests.unit.findings.example_runs import offloaded


@pytest.fixture
def trace(tmp_path: Path) -> str:
    path = tmp_path / "trace.json"
    write_trace(offloaded().build(), path)
    return str(path)


def test_one_rule_is_explained_in_words_and_as_json(capfd: Captured) -> None:
    assert main(["rule", "needless-offload"]) == 0
    text = capfd.readouterr().out
    for heading in ("GD001: Offload costs", "Why it costs", "When it is wrong", "References"):
        assert heading in text
    assert "https://www.deepspeed.ai/tutorials/zero-offload/" in text
    assert "<!--" not in text
    assert main(["rule", "GD004", "--json"]) == 0
    (entry,) = json.loads(capfd.readouterr().out)["rules"]
    assert (entry["id"], entry["family"]) == ("GD004", "system")


def test_a_report_of_some_rules(trace: str, capfd: Captured) -> None:
    assert main(["report", trace, "--json", "--select", "GD001,GD004", "--ignore", "GD004"]) == 0
    document = json.loads(capfd.readouterr().out)
    assert [f["id"] for f in document["findings"]] == ["GD001"]
    left_out = {n["id"]: n["reason"] for n in document["not_applicable"]}
    assert left_out["GD004"] == "skipped by --ignore"
    assert left_out["GD002"] == "not in --select"


@pytest.mark.parametrize(("severity", "code"), [("high", 0), ("medium", 6), ("info", 6)])
def test_a_grave_finding_fails_where_asked(
    trace: str, severity: str, code: int, capfd: Captured
) -> None:
    assert main(["report", trace, "--json", "--fail-on", severity]) == code
    assert json.loads(capfd.readouterr().out)["findings"]


def test_a_price_is_an_amount(trace: str, capfd: Captured) -> None:
    assert main(["report", trace, "--json", "--price", "2.5EUR"]) == 0
    cost = json.loads(capfd.readouterr().out)["findings"][0]["cost"]
    assert cost["currency"] == "EUR"
    assert cost["money_per_day"] == pytest.approx(cost["gpu_hours_per_day"] * 2.5, rel=1e-3)


def test_a_family_of_several_is_listed_and_nothing_else(capfd: Captured) -> None:
    assert main(["rule", "visibility"]) == 0
    listed = capfd.readouterr().out.splitlines()
    assert [line[:5] for line in listed if line.startswith("GD")] == ["GD005", "GD075"]
    assert listed[-1] == "`grpo-doctor rule ID` explains a rule."


@pytest.mark.parametrize("word", ["GL001", "gl1", "one-process-many-gpus"])
def test_a_rule_of_launches_is_explained_too(word: str, capfd: Captured) -> None:
    assert main(["rule", word]) == 0
    text = capfd.readouterr().out
    assert text.startswith("GL001: One process sees several GPUs.")
    assert "For launches of: " in text


def test_every_rule_is_listed(capfd: Captured) -> None:
    assert main(["rule", "launch", "--json"]) == 0
    listed = json.loads(capfd.readouterr().out)["rules"]
    assert [entry["id"] for entry in listed] == [rule.id for rule in load()]
    assert main(["rule"]) == 0
    out = capfd.readouterr().out
    assert all(f"{entry['id']}  launch" in out for entry in listed)
    assert all(f"{rule.RULE.id}  " in out for rule in ALL)


def options(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_rule_options(parser)
    return parser.parse_args(arguments)


def test_several_words_and_several_options_add_up() -> None:
    chosen = selection_of(options("--select", "GD001,GD002", "--select", "straggler-rank")).chosen
    assert [rule.RULE.id for rule in chosen] == ["GD001", "GD002", "GD004"]
    rules = selection_of(options("--select", "GD00", "--ignore", "GD001 rollout")).chosen
    assert [rule.RULE.id for rule in rules] == ["GD002", "GD004", "GD005"]


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (("--select", ""), "--select names no rule"),
        (("--ignore", " , "), "--ignore names no rule"),
        (("--select", "GD004", "--ignore", "system"), "leave no rule to run"),
        (("--select", "straggler"), "Did you mean straggler-rank?"),
    ],
)
def test_a_gate_that_would_judge_nothing_is_refused(arguments: tuple[str, ...], hint: str) -> None:
    with pytest.raises(UsageError, match=hint.replace("?", r"\?")):
        selection_of(options(*arguments))


@pytest.mark.parametrize(
    ("text", "amount", "currency"), [("2.49", 2.49, "USD"), (" 3eur ", 3.0, "EUR")]
)
def test_a_price_has_a_currency(text: str, amount: float, currency: str) -> None:
    price = price_of(options("--price", text))
    assert price is not None
    assert (price.per_gpu_hour, price.currency) == (amount, currency)


@pytest.mark.parametrize("text", ["nan", "-1", "0", "EUR", "", "2,49", "$2", "1e400", "inf"])
def test_what_is_no_amount_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="give an amount above 0"):
        price_of(options(f"--price={text}"))
