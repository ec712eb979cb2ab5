"""Words and numbers of a report at their edges."""
# ruff: noqa: RUF001 (the minus sign and the en dash are what a report prints)

from __future__ import annotations

import math
import re
from typing import Any

import pytest

from grpo_doctor_reports import formatting, render_html, time_words
from grpo_doctor_reports.page import by_reason, phases_drawn
from grpo_doctor_reports.palette import phase_class
from grpo_doctor_reports.schema.findings import NotRunEntry, PassedEntry, RuleEntry
from grpo_doctor_reports.schema.report import read_report
from grpo_doctor_reports.schema.views import CollectiveEntry


def read(**parts: Any) -> Any:
    return read_report({"schema": 1, **parts})


@pytest.mark.parametrize(("value_s", "shown"), [
    (0.0, "0 s"), (0.0000123, "12.3 µs"), (0.9994e-3, "999 µs"), (0.9995e-3, "0.999 ms"),
    (0.9994, "999 ms"), (0.9995, "1.00 s"), (119.9, "120 s"), (120.0, "2 min 00 s"),
    (7199.0, "119 min 59 s"), (7200.0, "2 h 00 min"), (172_799.0, "47 h 59 min"),
    (172_800.0, "2 d 0 h"), (180_000.0, "2 d 2 h"), (-90.0, "−90 s"), (math.nan, "–"),
    (math.inf, "–"), (None, "–"),
])  # fmt: skip
def test_a_duration_changes_its_unit_at_these_lengths(value_s: float | None, shown: str) -> None:
    assert formatting.seconds(value_s) == shown


@pytest.mark.parametrize(("value", "shown"), [
    (0.0, "0%"), (0.05, "<0.1%"), (-0.05, "<0.1%"), (0.1, "0.1%"), (7.000000000000001, "7%"),
    (7.04, "7.0%"), (9.94, "9.9%"), (9.95, "10%"), (-12.3, "−12%"), (math.nan, "–"),
])  # fmt: skip
def test_a_percentage_has_a_decimal_below_ten(value: float, shown: str) -> None:
    assert formatting.percent(value) == shown


def test_a_change_has_a_sign_unless_there_is_none() -> None:
    shown = [formatting.signed_percent(value) for value in (5.0, -5.0, 0.0, None)]
    assert shown == ["+5%", "−5%", "0%", "–"]


@pytest.mark.parametrize(("value", "shown"), [
    (0, "0"),
    (5_234.7, "5,235"),
    (9.996, "10.0"),
    (99.96, "100"),
    (99.4, "99.4"),
    (100.4, "100"),
    (1e15, "1.00e+15"),
    (999_999_999_999_999.0, "999,999,999,999,999"),
    (1e-9, "1.00e−09"),
    (0.0000123, "1.23e−05"),
    (0.000123, "0.000123"),
    (-3.0, "−3"),
])  # fmt: skip
def test_a_number_has_three_digits(value: float, shown: str) -> None:
    assert formatting.number(value) == shown


def test_sizes_are_binary() -> None:
    sizes = [0, 0.5, 1023, 1024, 1024**2, 1.5 * 1024**3, 1024**6, -2048, None]
    assert [formatting.size(value) for value in sizes] == [
        *("0 B", "0.500 B", "1,023 B", "1 KiB", "1 MiB", "1.50 GiB", "1,024 PiB", "−2 KiB", "–"),
    ]


def test_large_numbers_are_compact_from_ten_thousand() -> None:
    shown = [
        formatting.compact(value) for value in (9_999, 10_000, 52_300, 999_999, 1e6, 1e9, -2e6)
    ]
    assert shown == ["9,999", "10k", "52.3k", "1,000k", "1M", "1G", "−2M"]


def test_what_is_too_large_to_be_shown_is_no_number() -> None:
    assert formatting.finite(2**63) == 2**63
    values: list[object] = [2**64, -(2**64), math.inf, math.nan, True, "1", None]
    assert [formatting.finite(value) for value in values] == [None] * 7


def test_times_and_ranges() -> None:
    assert formatting.utc(1_795_000_000_000_000_000) == "2026-11-18 11:06 UTC"
    assert formatting.utc(0) == formatting.utc(None) == formatting.utc(10**30) == "–"
    assert formatting.utc(2**62) == "2116-02-20 23:53 UTC"
    assert formatting.utc(-(2**63)) != ""
    assert formatting.int_ranges([]) == ""
    assert formatting.int_ranges([3, 1, 2, 2, 7, 9, 10]) == "1–3, 7, 9–10"


def test_a_tool_and_a_framework_without_a_name() -> None:
    assert "<footer>\n<p>Drawn by grpo-doctor " in render_html({"schema": 1})
    assert "<p>Drawn by other " in render_html({"schema": 1, "tool": {"name": "other"}})
    run = {"framework": "trl", "framework_version": None}
    assert "<dd>trl</dd>" in render_html({"schema": 1, "run": run})
    assert "<dd>unknown</dd>" in render_html({"schema": 1, "run": {"framework": "unknown"}})
    assert read(run=run).run.exit.state == "unknown"
    assert read(run={"framework_version": "0.25"}).run.framework_version == "0.25"


def test_the_legend_has_the_phases_that_are_drawn_in_the_order_of_the_palette() -> None:
    report = read(views={"timeline": {"exact": {"names": ["train", "rollout", "mine"]}}})
    assert phases_drawn(report) == ["rollout", "train"]
    assert phases_drawn(read()) == []
    assert phase_class("rollout/generate") == "phase-rollout"
    assert phase_class("mine") == "phase-unattributed"


def test_what_many_checks_lack_is_said_once() -> None:
    lacks = {"A": ["steps", "GPU"], "B": ["steps"], "C": ["steps"], "D": ["steps"], "E": ["GPU"]}
    checks: list[RuleEntry] = [
        NotRunEntry(id=name, missing="; ".join(lacking), signals=lacking)
        for name, lacking in lacks.items()
    ]
    checks += [NotRunEntry(id="F", missing="something"), PassedEntry(id="G", note="fine")]
    groups = [(why, [(one.id, own) for one, own in group]) for why, group in by_reason(checks)]
    assert groups == [
        ("steps", [("A", "GPU"), ("B", ""), ("C", ""), ("D", "")]),
        ("", [("E", "GPU"), ("F", "something"), ("G", "fine")]),
    ]
    assert by_reason([]) == []


def test_a_group_that_has_a_number_for_a_name_is_called_a_group() -> None:
    collectives = [{"name": "all_reduce", "group": group} for group in ("1", "world", "dp")]
    page = render_html({"schema": 1, "views": {"collectives": collectives}})
    assert re.findall(r"all_reduce <small>(.*?)</small>", page) == ["(group 1)", "world", "dp"]


def test_bars_are_scaled_by_the_longest_collective() -> None:
    ends = [(1.0, 2.0), (2.5, 0.1)]
    collectives = [CollectiveEntry(skew_seconds=s, transfer_seconds=t) for s, t in ends]
    assert time_words.longest_collective(collectives) == 3.0
    assert time_words.longest_collective([]) == 0.0


def test_a_long_list_is_cut_and_one_that_fits_is_not() -> None:
    assert time_words.cut("x" * 90) == "x" * 90
    assert time_words.cut("x" * 91) == "x" * 89 + "…"
