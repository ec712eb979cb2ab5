"""One recorded job of every verdict and source; `stages.py` says what to do where it differs."""

from __future__ import annotations

import pytest

from tests.unit.hang import stages


@pytest.mark.slow
@pytest.mark.heavy
def test_the_job_is_understood_as_before() -> None:
    assert not stages.differing("model")
