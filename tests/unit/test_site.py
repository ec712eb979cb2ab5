"""The documentation: README's length, links between pages, and what the built site may fetch."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from grpo_doctor import cli
from tests.site import attach_picture, built
from tests.site.pages import INCLUDED, ROOT, linked

README = (ROOT / "README.md").read_text(encoding="utf-8")
_STARTED = re.compile(r"(\$ )?([A-Z_]+=\S+ )*(ray job submit -- )?")
_NUMBER = re.compile(r"\d+(?:[,.-]\d+)*")
LINK = re.compile(r"\]\(([^)#\s]+)")


def test_readme_is_read_in_three_minutes() -> None:
    assert len(README.split()) < 700


def test_readme_names_every_command() -> None:
    commands = ("run", "report", "attach", "check", "whatif", "compare", "rule", "selftest")
    assert [name for name in commands if f"grpo-doctor {name}" not in README] == []


@pytest.mark.parametrize(
    ("page", "records"),
    [
        (ROOT / "docs/accuracy.md", [*(ROOT / "benchmarks/results").glob("*.md")]),
        (ROOT / "README.md", [ROOT / "docs/accuracy.md"]),
    ],
)
def test_results_are_those_of_the_full_record(page: Path, records: list[Path]) -> None:
    known = set(_NUMBER.findall("".join(record.read_text("utf-8") for record in records)))
    rows = [row for row in page.read_text("utf-8").splitlines() if "| `python -m" in row]
    assert len(rows) > 5
    said = {number for row in rows for number in _NUMBER.findall(re.sub("`.*?`", "", row))}
    assert {number for number in said if not number.startswith("2026-")} - known == set()


def commands(page: Path) -> Iterator[list[str]]:
    """Arguments of `grpo-doctor` in the examples of a page, up to where the job's own begin."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    for fence in re.findall(r"^```\w*\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        for line in fence.splitlines():
            before, program, arguments = line.partition("grpo-doctor ")
            if program and _STARTED.fullmatch(before):
                words = itertools.takewhile(
                    lambda word: word not in ("--", "|", "&", ">"),
                    shlex.split(arguments, comments=True),
                )
                yield list(words)


PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
EXAMPLES = [(page, example) for page in PAGES for example in commands(page)]


def test_examples_are_found() -> None:
    assert len(EXAMPLES) > 30


@pytest.mark.parametrize(
    ("page", "example"), EXAMPLES, ids=lambda part: getattr(part, "name", None)
)
def test_examples_are_commands_that_exist(page: Path, example: list[str]) -> None:
    assert cli._parsed(example).name == example[0]


@pytest.mark.parametrize("source", INCLUDED)
def test_links_to_files_of_the_repository_lead_somewhere(source: str) -> None:
    folder = (ROOT / source).parent
    targets = LINK.findall((ROOT / source).read_text(encoding="utf-8"))
    assert [name for name in targets if ":" not in name and not (folder / name).exists()] == []


@pytest.mark.parametrize(
    ("page", "written", "on_the_site"),
    [
        ("index.md", "[why](docs/hang.md#classes)", "[why](hang.md#classes)"),
        ("index.md", "![seen](docs/images/report.png)", "![seen](images/report.png)"),
        ("index.md", "[how](ARCHITECTURE.md)", "[how](project/architecture.md)"),
        ("project/trainer.md", "[all](../docs/trainer_matrix.md)", "[all](../trainer_matrix.md)"),
        ("project/trainer.md", "[`loop.py`](grpo_doctor_trainer/loop.py)", "`loop.py`"),
        ("quickstart/trl.md", "[own](../../probes/README.md)", "[own](../project/recorder.md)"),
        ("project/changelog.md", "[all](docs/schemas)", "all"),
        ("hang.md", "[sure](accuracy.md#totals)", "[sure](accuracy.md#totals)"),
        ("hang.md", "[there](https://example.org/a.md)", "[there](https://example.org/a.md)"),
        ("hang.md", "[nowhere](../gone.md)", "[nowhere](../gone.md)"),
    ],
)
def test_links_lead_from_page_to_page(page: str, written: str, on_the_site: str) -> None:
    assert linked(written, page) == on_the_site


@pytest.mark.parametrize(
    "page",
    [
        '<script src="https://unpkg.com/x.js"></script>',
        '<link rel="preconnect stylesheet" href="//fonts.example.org/a.css">',
        '<img srcset="a.png 1x, http://example.org/b.png 2x">',
        "<style>body { background: url('https://example.org/a.png') }</style>",
        '<p style="background: url(//example.org/a.png)">',
        '<object data="https://example.org/a.svg"></object>',
    ],
)
def test_a_page_that_fetches_elsewhere_is_found(page: str) -> None:
    assert len(built.foreign(page)) == 1


def test_what_a_reader_may_click_is_not_fetched() -> None:
    page = '<a href="https://example.org">x</a><link rel="canonical" href="https://example.org">'
    assert built.foreign(f'{page}<img src="images/a.png"><script src="a.js"></script>') == []


def test_a_folder_without_pages_is_no_site(tmp_path: Path) -> None:
    assert built.main([str(tmp_path)]) == 1
    (tmp_path / "index.html").write_text("<p>x</p>")
    assert built.main([str(tmp_path)]) == 0
    (tmp_path / "a.css").write_text("@import 'https://example.org/a.css';")
    assert built.main([str(tmp_path)]) == 1


def test_a_terminal_is_drawn_line_by_line() -> None:
    lines = [
        attach_picture.Line("\x1b[1;31mRank 1 <waits>\x1b[0m", 5.0),
        attach_picture.Line("", 0.0),
        attach_picture.Line("word " * 30, 0.0),
    ]
    picture = attach_picture.drawn("grpo-doctor attach", lines)
    assert '<tspan class="red bold">Rank 1 &lt;waits&gt;</tspan>' in picture
    assert picture.count('class="line"') == 4  # the long one is wrapped as in a terminal
    assert "prefers-color-scheme:dark" in picture
    assert built.foreign(picture) == []


def test_the_picture_in_the_docs_needs_nothing_else() -> None:
    picture = (ROOT / "docs" / "images" / "attach.svg").read_text(encoding="utf-8")
    assert "grpo-doctor attach" in picture
    assert "<script" not in picture
    assert built.foreign(picture) == []
