"""Recorded jobs whose collectives do not fit together: which rank it is."""

from __future__ import annotations

import pytest

from tests.unit.hang.recorded import held_to_the_truth


@pytest.mark.parametrize(
    "family",
    ["gloo-collectives", "gloo-held-out-groups", "gloo-unforeseen-ranks", "gloo-unforeseen-torch"],
)
def test_who_left_a_collective_out_or_made_another_one(family: str) -> None:
    held_to_the_truth(family)
