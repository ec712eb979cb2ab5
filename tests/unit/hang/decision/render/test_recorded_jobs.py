"""Recorded jobs: the words of verdicts, and what stands next to them in the document."""

from __future__ import annotations

import pytest

from tests.unit.hang.recorded import FAMILIES, held_to_the_truth


@pytest.mark.parametrize("family", FAMILIES["render"])
def test_recorded_jobs_are_judged_as_is_true_and_in_the_same_words(family: str) -> None:
    held_to_the_truth(family)
