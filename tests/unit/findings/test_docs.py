from __future__ import annotations

from pathlib import Path

from grpo_doctor.findings import docs

FOLDER = Path(__file__).parents[3] / "docs" / "rules"


def test_the_pages_are_up_to_date() -> None:
    pages = docs.pages()
    on_disk = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.md")}
    assert on_disk == pages, "run `python -m grpo_doctor.findings.docs`"


def test_pages_are_written_into_a_folder(tmp_path: Path) -> None:
    assert docs.main([str(tmp_path / "rules")]) == 0
    assert sorted(p.name for p in (tmp_path / "rules").iterdir()) == sorted(docs.pages())
