# ruff: noqa: RUF001 (the minus sign is what a report prints)
from __future__ import annotations

from typing import Any

from grpo_doctor_reports.schema.findings import WhatifEntry
from grpo_doctor_reports.schema.report import read_report
from grpo_doctor_reports.whatif import (
    joint_flags,
    joint_words,
    same_gain,
    together_words,
    whatif_facts,
)


def fix(index: int, spelling: str) -> dict[str, Any]:
    return {"index": index, "finding": "GD003", "label": f"fix {index}", "spelling": spelling}


def change(fixes: list[int], mid: float | None) -> dict[str, Any]:
    return {"fixes": fixes, "low": None if mid is None else mid - 2, "mid": mid, "high": 1.0}


def read(**parts: Any) -> WhatifEntry:
    entry = {"step_time_s": 10.0, "fixes": [fix(0, "--a"), fix(1, "--b 2")], **parts}
    return read_report({"schema": 1, "whatif": entry}).whatif


def test_a_set_is_looked_up_as_it_was_predicted_and_never_added_up() -> None:
    sets = [change([0], -20.0), change([1], -30.0), change([0, 1], -35.0)]
    whatif = read(sets=sets)
    assert whatif_facts(whatif)["sets"]["0,1"] == {
        "now": "10 s", "time": "6.50 s", "interval": "6.30 s to 10.1 s", "change": "−35%",
        "range": "−37% to +1%", "low": 0.63, "mid": 0.65, "high": 1.01,
    }  # fmt: skip
    assert joint_flags(whatif, [0, 1]) == "--a --b 2"


def test_a_set_that_was_not_predicted_is_not_there() -> None:
    whatif = read(sets=[change([0], -20.0), change([0, 1], None)])
    assert joint_words(whatif, [0, 1]) is None
    assert together_words(read(sets=[change([0], -20.0)], together=[0, 1])) == ""


def test_the_fixes_of_several_findings_have_one_sum() -> None:
    whatif = read(sets=[change([0, 1], -35.0)], together=[0, 1])
    words = "GD003 and GD003, both fixed: 10 s → 6.50 s per step, −35% (−37% to +1%)"
    assert together_words(whatif) == words
    assert together_words(read()) == ""


def test_fixes_that_remove_the_same_say_so() -> None:
    alike = read(sets=[change([0], -43.0), change([1], -43.2), change([0, 1], -43.4)])
    assert [same_gain(alike, fix) for fix in alike.fixes] == ["", "--a"]
    apart = read(sets=[change([0], -43.0), change([1], -20.0), change([0, 1], -60.0)])
    assert [same_gain(apart, fix) for fix in apart.fixes] == ["", ""]


def test_flags_share_a_line_and_all_else_keeps_its_own() -> None:
    whatif = read(fixes=[fix(0, "a:\n  b: 1"), fix(1, "--c"), fix(2, "call f()"), fix(3, "-d 1")])
    assert joint_flags(whatif, [0, 1, 2, 3]) == "--c -d 1\na:\n  b: 1\ncall f()"
