"""The page is that of the code."""

from __future__ import annotations

from pathlib import Path

from grpo_doctor.launches.docs import main, updated

PAGE = Path(__file__).parents[3] / "docs" / "check.md"


def test_the_page_is_that_of_the_rules(tmp_path: Path) -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert updated(text) == text, "run `make docs`"
    (path := tmp_path / "check.md").write_text(text.replace("**GL001", "**GL999"), encoding="utf-8")
    assert main([str(path)]) == 0
    assert path.read_text(encoding="utf-8") == text
