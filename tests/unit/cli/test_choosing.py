"""Which rules a command runs, what a GPU costs, and when to fail."""

from __future__ import annotations

import argparse

import pytest

from grpo_doctor.cli.choosing import add_rule_options, price_of, selection_of
from grpo_doctor.errors import UsageError


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
