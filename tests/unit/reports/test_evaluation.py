"""Evaluations in words, and as one line of blocks."""

from __future__ import annotations

import pytest

from grpo_doctor_reports.terminal import sparkline


@pytest.mark.parametrize(("values", "width", "blocks"), [
    ([0, 7], 2, "▁█"), ([0, None, 7], 9, "▁█"), ([7, 0, 7], 3, "█▁█"), ([3, 3], 2, "▁▁"),
    ([0, 0, 7, 7], 2, "▁█"),
])  # fmt: skip
def test_a_curve_goes_from_its_lowest_to_its_highest_block(
    values: list[float | None], width: int, blocks: str
) -> None:
    assert sparkline(values, width) == blocks
