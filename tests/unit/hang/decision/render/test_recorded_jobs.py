"""One recorded job of every verdict and source; `stages.py` says what to do where it differs."""

from __future__ import annotations

import pytest

from tests.unit.hang import stages


@pytest.mark.slow
@pytest.mark.heavy
def test_the_verdict_has_the_same_words_as_before() -> None:
    assert not stages.differing("verdict")
