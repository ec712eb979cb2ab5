"""What a document says changes only where that is meant."""

from __future__ import annotations

import pytest

from tests.unit.document.said import RUNS, document, recorded

RECORDED = recorded()


@pytest.mark.parametrize("name", RUNS)
def test_a_document_says_what_was_written_down(name: str) -> None:
    assert document(name) == RECORDED[name], "python -m tests.unit.document.said"
