"""Recorded jobs: which process moves, sleeps, is stopped or has ended."""

from __future__ import annotations

import pytest

from tests.unit.hang.recorded import held_to_the_truth


@pytest.mark.parametrize(
    "family",
    [
        "gloo-slow",
        "gloo-unforeseen-ends",
        "gloo-unforeseen-beside",
        "gloo-unforeseen-data",
        "NCCL-rules--spinning-hosts-spinning",
    ],
)
def test_what_a_process_does_is_told(family: str) -> None:
    held_to_the_truth(family)
