"""One recorded job of every verdict and source; `stages.py` says what to do where it differs."""

from __future__ import annotations

import pytest

from tests.unit.hang import stages


@pytest.mark.slow
@pytest.mark.heavy
def test_recordings_are_read_as_before() -> None:
    assert not stages.differing("recordings")
