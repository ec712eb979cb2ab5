"""The verdict as text: its first line is the verdict, and nothing in it can hurt a terminal."""

from __future__ import annotations

import re
import unicodedata
from typing import Any

import pytest

from grpo_doctor_reports import DocumentError
from grpo_doctor_reports.hang import hang_text
from tests.demo_verdicts import VISITS

_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


def shown(name: str, width: int = 100, *, color: bool = False) -> str:
    return hang_text(VISITS[name](), width, color)


@pytest.mark.parametrize("width", [20, 60, 80, 110, 400])
def test_the_first_line_is_the_whole_verdict_at_any_width(width: int) -> None:
    document = VISITS["deadlock"]()
    assert shown("deadlock", width).splitlines()[0] == document["verdict"]["summary"]


@pytest.mark.parametrize("name", VISITS)
@pytest.mark.parametrize("width", [20, 38, 59, 60, 80, 110])
def test_what_is_not_to_be_copied_stays_within_the_width(name: str, width: int) -> None:
    copied = [fix.get("spelling") or "" for fix in VISITS[name]()["verdict"]["fixes"]] \
        if "verdict" in VISITS[name]() else []  # fmt: skip
    confirm = VISITS[name]().get("verdict", {}).get("confirm", [])
    commands = [line for line in confirm if not line.endswith(".")]
    for line in shown(name, width).splitlines()[1:]:
        assert len(line) <= width or line.strip() in copied + commands


def test_a_narrow_terminal_shows_columns_below_each_other() -> None:
    lines = shown("deadlock", 40).splitlines()
    at = lines.index("Processes")
    assert lines[at + 1] == "  rank 0  waiting"
    assert lines[at + 2].startswith("    all_gather, sync.py:52; waits for")


def test_a_command_to_copy_is_one_line_however_long() -> None:
    document = VISITS["stopped"]()
    command = "grpo-doctor run -- swift rlhf " + " ".join(f"--option_{at} {at}" for at in range(20))
    document["verdict"]["fixes"][0]["spelling"] = command
    assert command in hang_text(document, 60, color=False)


def test_alike_ranks_share_a_line() -> None:
    text = shown("stopped64")
    assert "ranks 0-16, 18-63" in text
    assert len(text.splitlines()) < 40


def test_a_cycle_of_64_ranks_is_told_in_a_few_lines() -> None:
    text = shown("ring")
    assert "rank 63 waits for rank 0 in recv, which closes the cycle" in text
    assert "and so on, to rank 63" in text
    assert len(text.splitlines()) < 40


def test_it_says_in_this_order() -> None:
    text = shown("reward")
    titles = ["Why", "Can this job go on?", "What to do now", "How to confirm",
              "Evidence", "Processes", "What could not be seen", "Looked for 2.13 s"]  # fmt: skip
    places = [text.index(f"\n{title}") for title in titles]
    assert places == sorted(places)


def test_a_healthy_job_is_not_told_what_to_do_now() -> None:
    assert "now" not in shown("slow").replace("not stuck", "").split("What to do")[1][:5]
    text = shown("healthy")
    assert text.startswith("The job is healthy: both ranks")
    assert "no rank was stopped for it" in text


def test_missing_ranks_are_in_the_table() -> None:
    assert re.search(r"ranks 1, 3 +missing +not on this host", shown("dead"))


def test_a_rank_whose_death_was_seen_is_not_said_to_be_elsewhere() -> None:
    document = VISITS["dead"]()
    document["job"] |= {"ranks_seen": [0, 2, 3], "ranks_missing": [1]}
    assert re.search(r"rank 1 +missing +no process any more", hang_text(document, 100, False))


@pytest.mark.parametrize("color", [False, True])
def test_hostile_text_is_visible_and_harmless(color: bool) -> None:
    text = shown("hostile", color=color)
    left = _ESCAPES.sub("", text) if color else text
    for character in left:
        assert character == "\n" or unicodedata.category(character) not in {"Cc", "Cf", "Cs"}
    assert "␛[31mred" in left
    assert "[red]markup[/red]" in left


def test_colours_only_where_they_are_wanted() -> None:
    assert "\x1b" not in shown("stopped")
    assert shown("stopped", color=True).startswith("\x1b[1;31m")


def test_the_least_document_has_a_first_line() -> None:
    assert shown("nothing").startswith("The job is not understood")


@pytest.mark.parametrize(
    "document", [{}, {"schema": 2}, {"schema": 1, "verdict": 3}, {"schema": 1, "ranks": [1]}]
)
def test_another_document_is_refused(document: dict[str, Any]) -> None:
    with pytest.raises(DocumentError):
        hang_text(document, 80, color=False)
