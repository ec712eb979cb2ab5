# ruff: noqa: RUF001 (the en dash and the minus sign are what a report prints)
from __future__ import annotations

import pytest

from grpo_doctor_reports import formatting


@pytest.mark.parametrize(
    ("value_s", "shown"),
    [
        (None, "–"),
        (0.0, "0 s"),
        (0.0000123, "12.3 µs"),
        (0.34, "340 ms"),
        (0.9996, "1.00 s"),
        (1.2, "1.20 s"),
        (41.23, "41.2 s"),
        (9.996, "10.0 s"),
        (119.4, "119 s"),
        (134, "2 min 14 s"),
        (7_300, "2 h 01 min"),
        (3 * 86_400, "3 d 0 h"),
        (-0.34, "−340 ms"),
        (float("nan"), "–"),
        (float("inf"), "–"),
    ],
)
def test_seconds_are_in_the_unit_a_person_would_use(value_s: float | None, shown: str) -> None:
    assert formatting.seconds(value_s) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0, "0"), (1_350, "1,350"), (5_234.7, "5,235"), (3.14159, "3.14"), (0.00042, "0.000420"),
     (1e-9, "1.00e−09"), (1e18, "1.00e+18"), (-2.5, "−2.50"), (9.999, "10.0")],
)  # fmt: skip
def test_numbers_keep_three_digits_and_whole_numbers_all(value: float, shown: str) -> None:
    assert formatting.number(value) == shown


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
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
    ],
)
def test_quantities_carry_their_unit(value: float, unit: str, shown: str) -> None:
    assert formatting.quantity(value, unit) == shown


def test_ranks_are_shown_as_ranges() -> None:
    assert formatting.int_ranges([5, 0, 1, 2, 2]) == "0–2, 5"


def test_more_than_fit_are_counted() -> None:
    assert formatting.listed([], 2) == ""
    assert formatting.listed(["a", "b"], 2) == "a, b"
    assert formatting.listed(["a", "b", "c", "d"], 2) == "a, b and 2 more"


def test_a_start_time_out_of_range_is_no_time() -> None:
    assert formatting.utc(2**62) == "2116-02-20 23:53 UTC"
    assert formatting.utc(-(2**63)) != ""
    assert formatting.utc(0) == "–"


def test_counts_have_their_plural() -> None:
    assert formatting.count(1, "rank") == "1 rank"
    assert formatting.count(1_002, "rank") == "1,002 ranks"


@pytest.mark.parametrize(
    ("value", "shown"), [(5_230.0, "5,230"), (52_300, "52.3k"), (1_200_000, "1.20M"), (None, "–")]
)
def test_large_rates_are_compact(value: float | None, shown: str) -> None:
    assert formatting.compact(value) == shown
