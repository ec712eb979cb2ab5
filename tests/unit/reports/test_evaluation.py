"""Evaluations in words, and as one line of blocks."""

from __future__ import annotations

import pytest

from grpo_doctor_reports.charts.curves import best_words, from_to, trained_metric
from grpo_doctor_reports.schema.views import Evaluation
from grpo_doctor_reports.terminal import sparkline

KNOWN = Evaluation(metric="eval_reward", steps=[10, 20, 30], values=[0.25, 0.5, None], best_step=20)


def test_the_best_is_said_with_its_value() -> None:
    assert trained_metric(KNOWN) == "reward"
    assert best_words(KNOWN) == "best 0.500 after step 20"
    assert from_to(KNOWN.values) == ("0.250", "0.500")


@pytest.mark.parametrize(("values", "width", "blocks"), [
    ([0, 7], 2, "▁█"), ([0, None, 7], 9, "▁█"), ([7, 0, 7], 3, "█▁█"), ([3, 3], 2, "▁▁"),
    ([0, 0, 7, 7], 2, "▁█"),
])  # fmt: skip
def test_a_curve_goes_from_its_lowest_to_its_highest_block(
    values: list[float | None], width: int, blocks: str
) -> None:
    assert sparkline(values, width) == blocks
