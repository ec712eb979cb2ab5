"""What is said of memory that was foretold and measured."""

from __future__ import annotations

from typing import Any

import pytest

from grpo_doctor_reports.document import read_document
from grpo_doctor_reports.memory_words import memory_sentences

GIB = 2**30
CARD = {
    "rank": 3, "capacity_bytes": 80 * GIB, "measured_bytes": 60 * GIB, "predicted_bytes": 50 * GIB,
    "low_bytes": 40 * GIB, "high_bytes": 65 * GIB,
}  # fmt: skip
FORETOLD = "50 GiB foretold (40 GiB to 65 GiB)."


def sentences(**memory: Any) -> list[str]:
    return memory_sentences(read_document({"schema": 1, "memory": memory}).memory)


def test_on_a_card_the_peak_stands_beside_what_was_foretold() -> None:
    assert sentences(**CARD) == [f"Memory, first step: 60 GiB of 80 GiB on rank 3; {FORETOLD}"]


@pytest.mark.parametrize("unknown", ["measured_bytes", "predicted_bytes"])
def test_without_one_of_both_there_is_nothing_to_compare(unknown: str) -> None:
    assert sentences(**{**CARD, unknown: None}) == []
    assert sentences() == []


def test_on_a_host_what_the_step_added_is_compared() -> None:
    additions = [
        {"phase": "loaded", "measured_bytes": 5 * GIB, "predicted_bytes": 4 * GIB},
        {"phase": "train", "measured_bytes": 2 * GIB, "predicted_bytes": 3 * GIB},
        {"phase": "rollout", "measured_bytes": None, "predicted_bytes": GIB},
        {"phase": "sync", "measured_bytes": GIB, "predicted_bytes": None},
    ]
    host = {**CARD, "capacity_bytes": None, "measured_bytes": 8 * GIB, "additions": additions}
    (sentence,) = sentences(**host)
    assert sentence == (
        "Memory (RSS), first step: 3 GiB more on rank 3 than the 5 GiB that were loaded; "
        "4 GiB foretold."
    )


def test_longer_rows_would_take_more() -> None:
    rows = {"row_tokens": 512, "longest_row_tokens": 4_096, "longest_bytes": 72 * GIB}
    longest = "Rows of 4,096 tokens, the most that is allowed, would take 72 GiB."
    first, second = sentences(**CARD, **rows)
    assert first.endswith("50 GiB foretold for its rows of 512 tokens (40 GiB to 65 GiB).")
    assert second == longest
    assert len(sentences(**CARD, **{**rows, "longest_bytes": None})) == 1
    assert len(sentences(**CARD, **{**rows, "row_tokens": None})) == 1


def test_what_there_is_room_for_and_what_only_was_foretold_to_fit_are_said() -> None:
    advice = [
        {"spelling": "--a", "bytes": 70 * GIB, "fits": True, "fits_by_ledger": True},
        {"spelling": "--b", "bytes": 75 * GIB, "fits": True, "fits_by_ledger": False},
        {"spelling": "--c", "bytes": 90 * GIB, "fits": False, "fits_by_ledger": True},
        {"spelling": "--d", "bytes": 99 * GIB, "fits": False, "fits_by_ledger": False},
    ]
    assert sentences(**CARD, advice=advice)[1:] == [
        "By what was measured there is room for one of: --a (70 GiB), --b (75 GiB).",
        "Foretold to fit, and by what was measured too large: --c.",
    ]
