"""The docs and the report mean the same by a word."""

from __future__ import annotations

from pathlib import Path

from grpo_doctor_reports.glossary import PHASE_MEANINGS, TERMS

PAGE = Path(__file__).parents[3] / "docs/glossary.md"


def test_the_docs_have_every_word_of_the_report() -> None:
    rows = PAGE.read_text(encoding="utf-8").splitlines()
    assert not [term for term, meaning in TERMS if f"| {term} | {meaning} |" not in rows]
    assert not [name for name, meaning in PHASE_MEANINGS if f"| `{name}` | {meaning} |" not in rows]
