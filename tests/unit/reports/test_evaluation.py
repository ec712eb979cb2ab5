"""Evaluations of any document that somebody hands over."""

from __future__ import annotations

import pytest

from grpo_doctor_reports.evaluation import best_words, from_to, sparkline, trained_metric
from grpo_doctor_reports.model import Curve
from grpo_doctor_reports.schema.views import Evaluation
from grpo_doctor_reports.views import read_evaluation

KNOWN = Evaluation(metric="eval_reward", steps=[10, 20, 30], values=[0.25, 0.5, None], best_step=20)


def test_the_best_is_read_with_its_value() -> None:
    evaluation = read_evaluation(KNOWN)
    assert evaluation is not None
    assert evaluation.best == 0.5
    assert trained_metric(evaluation) == "reward"
    assert best_words(evaluation) == "best 0.500 after step 20"
    assert from_to(evaluation.curve.values) == ("0.250", "0.500")


@pytest.mark.parametrize(
    "part",
    [
        None,
        Evaluation(),
        Evaluation(metric="m", steps=[10], values=[0.5], best_step=None),
        Evaluation(metric="m", steps=[10], values=[0.5], best_step=20),
        Evaluation(metric="m", steps=[10], values=[None], best_step=10),
        Evaluation(metric="m", steps=[10], values=[], best_step=10),
    ],
)
def test_without_a_best_step_that_has_a_value_there_is_none(part: Evaluation | None) -> None:
    assert read_evaluation(part) is None


@pytest.mark.parametrize(
    ("values", "width", "blocks"),
    [
        ([0, 7], 2, "▁█"),
        ([0, None, 7], 9, "▁█"),
        ([7, 0, 7], 3, "█▁█"),
        ([3, 3], 2, "▁▁"),
        ([0, 0, 7, 7], 2, "▁█"),
    ],
)
def test_a_curve_goes_from_its_lowest_to_its_highest_block(
    values: list[float | None], width: int, blocks: str
) -> None:
    assert sparkline(Curve("m", list(range(len(values))), values), width) == blocks
