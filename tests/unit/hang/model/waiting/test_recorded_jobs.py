"""Recorded jobs that hang at the end of a chain of waits."""

from __future__ import annotations

import pytest

from tests.unit.hang.recorded import held_to_the_truth


@pytest.mark.parametrize(
    "family",
    [
        "gloo-held-out-chains",
        "gloo-unforeseen-chains",
        "gloo-threads",
        "gloo-unforeseen-locks",
        "gloo-unforeseen-waiting",
    ],
)
def test_the_end_of_a_chain_is_found(family: str) -> None:
    held_to_the_truth(family)
