"""The verdict as text: its first line is the verdict, and nothing in it can hurt a terminal."""

from __future__ import annotations

import re
import unicodedata
from typing import Any

import pytest

from grpo_doctor_reports import DocumentError
from grpo_doctor_reports.hang.terminal import hang_text
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


def test_a_rank_whose_death_was_seen_is_not_said_to_be_elsewhere() -> None:
    document = VISITS["dead"]()
    document["job"] |= {"ranks_seen": [0, 2, 3], "ranks_missing": [1]}
    text = hang_text(document, 100, False)
    assert re.search(r"rank 1 +missing +the process no longer exists", text)


@pytest.mark.parametrize("color", [False, True])
def test_hostile_text_is_visible_and_harmless(color: bool) -> None:
    text = shown("hostile", color=color)
    plain = _ESCAPES.sub("", text) if color else text
    for character in plain:
        assert character == "\n" or unicodedata.category(character) not in {"Cc", "Cf", "Cs"}
    assert "␛[31mred" in plain
    assert "[red]markup[/red]" in plain


def test_colours_only_where_they_are_wanted() -> None:
    assert "\x1b" not in shown("stopped")
    assert shown("stopped", color=True).startswith("\x1b[1;31m")


@pytest.mark.parametrize(
    "document", [{}, {"schema": 2}, {"schema": 1, "verdict": 3}, {"schema": 1, "ranks": [1]}]
)
def test_another_document_is_refused(document: dict[str, Any]) -> None:
    with pytest.raises(DocumentError):
        hang_text(document, 80, color=False)


def parts(**members: Any) -> list[str]:
    document = {"schema": 1, "verdict": {"state": "stuck"}, **members}
    return hang_text(document, 100, color=False).splitlines()


def after(title: str, lines: list[str]) -> list[str]:
    """The lines of a section."""
    begin = lines.index(title) + 1
    end = lines.index("", begin) if "" in lines[begin:] else len(lines)
    return lines[begin:end]


@pytest.mark.parametrize(("count", "shown", "more"), [(12, 12, ""), (13, 12, "1"), (40, 12, "28")])
def test_of_one_source_a_dozen_pieces_of_evidence_are_said(
    count: int, shown: int, more: str
) -> None:
    items = [{"source": "proc", "text": f"item {at}"} for at in range(count)]
    items.append({"source": "log", "text": "line"})
    section = after("Evidence", parts(verdict={"evidence": items}))
    assert sum("item" in line for line in section) == shown
    assert sum(line.startswith("  proc  item 0") for line in section) == 1
    assert [line.split()[0] for line in section if "more on the page" in line] == (
        [more] if more else []
    )
    assert section[-1] == "  log   line"


@pytest.mark.parametrize(("count", "more"), [(16, ""), (17, "1"), (19, "3")])
def test_of_rows_of_processes_and_of_hosts_sixteen_are_shown(count: int, more: str) -> None:
    ranks = [{"rank": rank, "role": "rank", "state": f"s{rank}"} for rank in range(count)]
    hosts = [{"name": f"gpu-{at:02}", "ranks": [at]} for at in range(count)]
    lines = parts(ranks=ranks, job={"hosts": hosts})
    for title in ("Processes", "Hosts"):
        section = after(title, lines)
        assert len(section) == 16 + bool(more)
        if more:
            assert section[-1].strip() == f"{more} more on the page and in --json"


@pytest.mark.parametrize(("count", "more"), [(12, []), (13, ["  1 more in --json"])])
def test_a_dozen_problems_are_said(count: int, more: list[str]) -> None:
    problems = [{"what": f"no {at}", "remedy": "be root" if at == 0 else ""} for at in range(count)]
    section = after("What could not be inspected", parts(problems=problems))
    assert section[0] == "  no 0 be root"
    assert section[11:] == ["  no 11", *more]


def test_fixes_have_numbers_where_there_are_several() -> None:
    first, second = {"text": "Do it.", "spelling": "run --now"}, {"text": "Or not."}
    assert after("What to do now", parts(verdict={"fixes": [first]})) == [
        "  Do it.", "      run --now",
    ]  # fmt: skip
    assert after("What to do now", parts(verdict={"fixes": [first, second]})) == [
        "  1. Do it.", "         run --now", "  2. Or not.",
    ]  # fmt: skip


def test_missing_ranks_alone_are_a_table_too() -> None:
    assert after("Processes", parts(job={"ranks_missing": [4, 5]})) == [
        "  ranks 4-5  missing  not on this host",
    ]  # fmt: skip
    assert "Processes" not in parts()


def test_colours_say_what_is_guilty_and_what_is_beside() -> None:
    ranks = [{"rank": rank, "role": "rank", "state": "waiting"} for rank in (0, 1)]
    document = {"schema": 1, "verdict": {"state": "slow", "culprits": [1]}, "ranks": ranks}
    text = hang_text(document, 100, color=True)
    assert text.startswith("\x1b[1;33m")
    assert re.search(r"\x1b\[1m +rank 1", text)
    assert not re.search(r"\x1b\[1m +rank 0", text)
