from __future__ import annotations

from pathlib import Path

import pytest

from tests.pages import put_section


def test_sections_are_replaced_in_place(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    put_section(page, "a", "first")
    put_section(page, "b", "second")
    put_section(page, "a", "third")
    text = page.read_text()
    assert text.index("third") < text.index("second")
    assert "first" not in text
    put_section(page, "a", "third")
    assert page.read_text() == text


def test_headings_go_below_the_page_s_own(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Page\n")
    put_section(page, "a", "# Title\n\n## Part\n")
    assert "\n## Title\n\n### Part\n" in page.read_text()


def test_a_section_without_end_is_left_alone(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- section a -->\nby hand")
    with pytest.raises(ValueError, match="has no end"):
        put_section(page, "a", "x")
    assert page.read_text() == "<!-- section a -->\nby hand"
