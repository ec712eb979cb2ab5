from __future__ import annotations

from pathlib import Path

import pytest

from tests import words

LONG = "a word " * 13
MODULE = f'''"""Say what nobody\nneeds."""
WHY = 1
print(f"{{WHY}} goes\ton", "docs/knobs.md, --no-beside, mendable", "{LONG}")
'''.replace("goes\ton", "goes on")


def test_strings_and_docstrings_are_read_and_names_are_not(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(MODULE)
    assert words.in_file(path) == [
        "1: 'nobody': write no rank, no process, no one",
        "4: 'goes on': write continue, resume, happen",
        "4: a sentence of 26 words: a word a word a word a word ...",
    ]


def test_a_page_is_read_over_the_ends_of_its_lines(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text(f"{LONG}\nIt looks\nwhether it fits.\n")
    assert words.in_file(path) == ["2: 'looks whether': write check whether"]


@pytest.mark.parametrize("found", ["beside", "plain"])
def test_the_check_fails_on_a_problem_and_on_a_clean_folder_that_is_listed(
    found: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "page.md").write_text(f"{found} words\n")
    monkeypatch.setattr(words, "ROOT", tmp_path)
    monkeypatch.setattr(words, "NOT_CLEAN", ("docs",))
    assert words.main([]) == (found == "plain")
    assert words.main(["docs"]) == (found == "beside")
    monkeypatch.setattr(words, "NOT_CLEAN", ())
    assert words.main([]) == (found == "beside")
    assert ("'beside'" in capsys.readouterr().out) == (found == "beside")


def test_the_words_are_those_of_the_style_page() -> None:
    assert words.BANNED["beside"] == "next to, alongside, in addition to"
    assert len(set(words.BANNED.values())) >= 40
