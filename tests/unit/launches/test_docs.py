"""The page is that of the code."""

from __future__ import annotations

from pathlib import Path

from grpo_doctor.launches.docs import main, page

PAGE = Path(__file__).parents[3] / "docs" / "check.md"


def test_the_page_is_that_of_the_rules(tmp_path: Path) -> None:
    assert page() == PAGE.read_text(encoding="utf-8"), "run `make docs`"
    assert main([str(tmp_path / "check.md")]) == 0
    assert (tmp_path / "check.md").read_text(encoding="utf-8") == page()
