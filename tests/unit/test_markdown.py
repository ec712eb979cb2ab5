from __future__ import annotations

from pathlib import Path

import pytest

from grpo_doctor.markdown import WIDTH, wrapped

ROOT = Path(__file__).parents[2]
FOLDERS = ("benchmarks", "docs", "grpo_doctor", "probes", "reports", "tests", "trainer")
PAGES = [*ROOT.glob("*.md"), *(page for name in FOLDERS for page in (ROOT / name).rglob("*.md"))]
LONG = " ".join(["word"] * 60)


def test_a_long_line_is_broken_and_says_the_same() -> None:
    lines = wrapped(LONG).split("\n")
    assert all(WIDTH - 5 < len(line) <= WIDTH for line in lines[:-1])
    assert " ".join(lines) == LONG


@pytest.mark.parametrize("start", ["- ", "12. ", "  * "])
def test_an_item_goes_on_below_its_text(start: str) -> None:
    first, *later = wrapped(start + LONG).split("\n")
    assert first.startswith(f"{start}word")
    assert later
    assert all(line.startswith(" " * len(start) + "word") for line in later)


@pytest.mark.parametrize(
    "text",
    [
        "short",
        "x" * WIDTH,
        f"| {LONG} |",
        f"# {LONG}",
        f"<!-- {LONG} -->",
        f"```sh\n{LONG}\n```",
        f"- item:\n  ```\n  {LONG}\n  ```\n",
        "",
    ],
)
def test_what_may_not_be_broken_stays(text: str) -> None:
    assert wrapped(text) == text


def test_prose_behind_code_is_prose_again() -> None:
    code = f"```\n{LONG}\n```\n"
    assert wrapped(code + LONG) == code + wrapped(LONG)


@pytest.mark.parametrize("unit", ["`a command of words`", "[a link of words](page.md)"])
def test_code_and_links_stay_on_a_line(unit: str) -> None:
    for before in range(WIDTH - 30, WIDTH + 2):
        assert unit in wrapped("x" * before + f" {unit} behind")


@pytest.mark.parametrize("mark", ["-", "+", "#", "2.", "3)", ">"])
def test_no_line_begins_with_what_markdown_reads_as_a_mark(mark: str) -> None:
    text = f"{'x' * (WIDTH - len(mark))} {mark} {LONG}"
    assert not [line for line in wrapped(text).split("\n") if line.startswith(mark)]


def test_what_is_wrapped_stays_as_it_is() -> None:
    once = wrapped(f"- {LONG}\n\n{LONG}")
    assert wrapped(once) == once


def test_a_command_longer_than_a_line_is_broken_between_its_words() -> None:
    lines = wrapped(f"`{LONG}`").split("\n")
    assert all(len(line) <= WIDTH for line in lines)
    assert " ".join(lines) == f"`{LONG}`"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_line_of_a_page_is_wider_than_a_window(page: Path) -> None:
    lines = page.read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if len(line) > WIDTH and not line.startswith("|")] == []
