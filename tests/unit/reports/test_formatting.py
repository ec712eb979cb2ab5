# ruff: noqa: RUF001 (the en dash and the minus sign are what a report prints)
from __future__ import annotations

import pytest

from grpo_doctor_reports import formatting


@pytest.mark.parametrize(("value", "unit", "shown"), [
    (13_207_024_435, "bytes", "12.3 GiB"),
    (4.0e8, "bytes/s", "381 MiB/s"),
    (61.2, "%", "61%"),
    (7.94, "%", "7.9%"),
    (0.04, "%", "<0.1%"),
    (55.04, "% of the step", "55% of the step"),
    (0.42, "share", "42%"),
    (250, "ms", "250 ms"),
    (1_500_000, "ns", "1.50 ms"),
    (-14.2, "step_time_pct", "−14%"),
    (3.0, "step_time_pct", "+3%"),
    (1_350, "MHz", "1,350 MHz"),
    (3, "", "3"),
])  # fmt: skip
def test_quantities_carry_their_unit(value: float, unit: str, shown: str) -> None:
    assert formatting.quantity(value, unit) == shown


def test_more_than_fit_are_counted() -> None:
    assert formatting.listed([], 2) == ""
    assert formatting.listed(["a", "b"], 2) == "a, b"
    assert formatting.listed(["a", "b", "c", "d"], 2) == "a, b and 2 more"


def test_counts_have_their_plural() -> None:
    assert formatting.count(1, "rank") == "1 rank"
    assert formatting.count(1_002, "rank") == "1,002 ranks"
