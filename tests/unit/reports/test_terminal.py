# ruff: noqa: RUF001 (the en dash and the minus sign are what a report prints)
from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from grpo_doctor_reports import render_html, render_text
from grpo_doctor_reports.markdown import render_markdown
from tests.demo_reports import DEMOS


def digest(name: str, width: int = 100, *, color: bool = False) -> str:
    return render_text(demo(name), width=width, color=color)


@cache
def demo(name: str) -> dict[str, Any]:
    return DEMOS[name]()


def test_a_long_title_gives_way_to_its_numbers() -> None:
    narrow = next(line for line in digest("crowded", 60).splitlines() if "GD030" in line)
    assert narrow.endswith("…  costs 11%, fix −9.9%")


@pytest.mark.parametrize("width", [1, 40, 60, 80, 120, 500])
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow if name == "long" else ()) for name in DEMOS],
)
def test_no_line_is_wider_than_the_terminal(name: str, width: int) -> None:
    lines = [line for line in digest(name, width).splitlines() if not is_to_be_pasted(line)]
    assert max(map(len, lines)) <= max(40, min(120, width))


def is_to_be_pasted(line: str) -> bool:
    return line.startswith("    fix   ") or "`" in line


@pytest.mark.parametrize("width", [1, 40, 60, 80, 120])
def test_what_is_to_be_pasted_is_whole_at_any_width(width: int) -> None:
    document = DEMOS["slow"]()
    finding = document["findings"][0]
    command = "--reward_funcs accuracy format rewards.py:judged --reward_weights 1 0.5 0.25 " * 2
    finding["fixes"] = [{"knob": "x", "spelling": command.strip()}]
    advised = {"text": "while it runs, `grpo-doctor attach -o evidence --confirm` says who waits"}
    document["findings"][1].update(fixes=[], next_steps=[advised])
    lines = render_text(document, width=width, color=False).splitlines()
    assert f"    fix   {command.strip()}" in lines
    finding["fixes"] = [{"spelling": "from x import y\nwith y():\n    y()"}]
    lines = render_text(document, width=width, color=False).splitlines()
    at = lines.index("    fix   from x import y")
    assert lines[at + 1 : at + 3] == ["          with y():", "              y()"]
    assert any("`grpo-doctor attach -o evidence --confirm`" in line for line in lines)


def test_a_bar_is_no_longer_than_its_share() -> None:
    document = DEMOS["slow"]()
    phases = {"train": 100.0, "rollout": 50.0, "sync": 1.0, "dataload": 0.001}
    document["summary"].update(
        step_time_s=151.001,
        unattributed_s=0.0,
        phases={
            name: {"seconds": seconds, "work_seconds": seconds} for name, seconds in phases.items()
        },
    )
    rows = render_text(document, width=100, color=False).splitlines()
    bars = {
        name: next(line for line in rows if line.startswith(f"{name} "))
        .removeprefix(name)
        .split()[0]
        for name in phases
    }
    assert (len(bars["train"]), len(bars["rollout"])) == (40, 20)
    assert bars["sync"] == "▍"
    assert bars["dataload"] == "1"  # its number: there is no bar


def test_colour_is_asked_for_or_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b" not in digest("slow")
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[38;2;79;109;211m" in digest("slow", color=True)


def test_no_hostile_string_reaches_the_terminal() -> None:
    text = digest("hostile")
    assert text.replace("\n", "").isprintable()
    assert "[red]markup[/red]" in text.replace("\n", "")
    assert "␛[31mred" in text
    text.encode("utf-8")


def test_hostile_strings_add_no_escape_sequence_of_their_own() -> None:
    colored = digest("hostile", color=True)
    assert "\x1b]" not in colored
    assert "\x1b[31mred" not in colored
    assert "\x07" not in colored


def test_rules_that_nobody_asked_for_are_not_called_inapplicable() -> None:
    document = DEMOS["slow"]()
    document["not_applicable"][0]["left_out"] = True
    text = render_text(document, width=100, color=False)
    assert "2 skipped (missing data) · 1 not applicable · 1 deselected" in " ".join(text.split())


def test_a_rule_that_failed_is_named_with_its_error() -> None:
    document = DEMOS["slow"]()
    document["rule_errors"] = [
        {"id": "GD099", "slug": "x", "title": "X", "exception": "KeyError", "message": "'loss'"}
    ]
    text = render_text(document, width=100, color=False)
    assert "GD099 failed; please report this bug: KeyError: 'loss'" in " ".join(text.split())
    page = render_html(document)
    assert "KeyError: &#39;loss&#39;" in page
    assert "1 rule failed" in render_html({**document, "findings": []})


@pytest.mark.parametrize("width", [40, 100])
def test_the_curve_of_evaluations_stands_under_that_of_training(width: int) -> None:
    views = {
        "metrics": {"steps": [1, 2, 3, 4], "series": {"reward": [0.1, 0.2, 0.4, 0.8]}},
        "evaluation": {"metric": "eval_reward", "steps": [2, 4], "values": [0.75, 0.5],
            "best_step": 2},
    }  # fmt: skip
    text = render_text({"schema": 1, "views": views}, width=width, color=False)
    rows = [line.split() for line in text.splitlines()]
    assert ["reward", "0.100", "▁▂▄█", "0.800"] in rows
    assert ["evaluation", "0.750", "█▁", "0.500"] in rows
    assert "Best 0.750 after step 2." in text


def test_a_phase_that_the_host_alone_timed_is_marked_everywhere() -> None:
    document = DEMOS["slow"]()
    document["summary"]["phases"]["logprob"]["host_time"] = True
    text = render_text(document, width=100, color=False)
    marked = [line for line in text.splitlines() if "host time" in line]
    assert [line.split()[0] for line in marked] == ["logprob"]
    assert "| logprob (host time) |" in render_markdown(document)
    assert render_html(document).count("<small>host time</small>") == 2  # bar and table
    assert "<small>host time</small>" not in render_html(DEMOS["slow"]())
