"""What is said of memory that was predicted and measured."""

from __future__ import annotations

from typing import Any

import pytest

from grpo_doctor_reports.schema.report import read_report
from grpo_doctor_reports.terminal import memory_sentences

GIB = 2**30
CARD = {
    "rank": 3, "capacity_bytes": 80 * GIB, "measured_bytes": 60 * GIB, "predicted_bytes": 50 * GIB,
    "low_bytes": 40 * GIB, "high_bytes": 65 * GIB,
}  # fmt: skip
PEAK = "Memory, first step: rank 3 peaked at 60 GiB of 80 GiB (predicted: 50 GiB, 40 GiB to 65 GiB"


def sentences(**memory: Any) -> list[str]:
    return memory_sentences(read_report({"schema": 1, "memory": memory}).memory)


@pytest.mark.parametrize(
    ("measured", "wrong"), [(39, True), (40, False), (65, False), (66, True), (400, True)]
)
def test_a_peak_outside_of_the_prediction_is_said_to_be(measured: int, wrong: bool) -> None:
    (sentence,) = sentences(**{**CARD, "measured_bytes": measured * GIB})
    assert sentence.endswith(
        "40 GiB to 65 GiB): the prediction is wrong for this run." if wrong else "65 GiB)."
    )


@pytest.mark.parametrize("unknown", ["measured_bytes", "predicted_bytes"])
def test_without_one_of_both_there_is_nothing_to_compare(unknown: str) -> None:
    assert sentences(**{**CARD, unknown: None}) == []
    assert sentences() == []


def test_longer_rows_would_take_more() -> None:
    rows = {"row_tokens": 512, "longest_row_tokens": 4_096, "longest_bytes": 72 * GIB}
    longest = "At the maximum sequence length (4,096 tokens) it would need 72 GiB."
    first, second = sentences(**CARD, **rows)
    assert first == f"{PEAK}, at 512 tokens per sequence)."
    assert second == longest
    assert len(sentences(**CARD, **{**rows, "longest_bytes": None})) == 1
    assert len(sentences(**CARD, **{**rows, "row_tokens": None})) == 1


def test_what_there_is_room_for_and_what_only_was_predicted_to_fit_are_said() -> None:
    advice = [
        {"spelling": "--a", "bytes": 70 * GIB, "fits": True, "fits_by_ledger": True},
        {"spelling": "--b", "bytes": 60 * GIB, "fits": True, "fits_by_ledger": False},
        {"spelling": "--c", "bytes": 90 * GIB, "fits": False, "fits_by_ledger": True},
        {"spelling": "--d", "bytes": 99 * GIB, "fits": False, "fits_by_ledger": False},
    ]
    assert sentences(**CARD, advice=advice)[1:] == [
        "Measured usage leaves room for one of: --a (70 GiB), --b (no more than now).",
        "Predicted to fit, but too large judging by measured usage: --c.",
    ]
