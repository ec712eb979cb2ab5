"""What counts as a history of waits; what is said of it, recorded jobs hold."""

from __future__ import annotations

import pytest

from grpo_doctor.hang.model.matching.model import Matching, Pace
from grpo_doctor.hang.model.view import LEAST_ENTRIES, recorded_history


@pytest.mark.parametrize(
    ("entries", "longest_gap_s"), [(LEAST_ENTRIES, 2.0), (LEAST_ENTRIES - 1, None)]
)
def test_fewer_operations_than_that_are_no_history(
    entries: int, longest_gap_s: float | None
) -> None:
    pace = Pace(0, entries=entries, longest_gap_ns=2 * 10**9)
    assert recorded_history(Matching(paces=(pace,))).longest_gap_s == longest_gap_s
