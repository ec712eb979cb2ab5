"""Recorded jobs with flight recorders of gloo and NCCL, and answers of NCCL's RAS."""

from __future__ import annotations

import pytest

from tests.unit.hang.recorded import FAMILIES, held_to_the_truth


@pytest.mark.parametrize("family", FAMILIES["dumps"])
def test_recorded_jobs_are_judged_as_is_true_and_in_the_same_words(family: str) -> None:
    held_to_the_truth(family)
