"""The numbers of an analysis change only where that is meant."""

from __future__ import annotations

import pytest

from tests.unit.analysis.numbers import SEEDS, numbers, recorded

RECORDED = recorded()


@pytest.mark.parametrize("seed", SEEDS)
def test_numbers_are_those_that_were_written_down(seed: int) -> None:
    assert numbers(seed) == RECORDED[f"seed {seed}"], "python -m tests.unit.analysis.numbers"
