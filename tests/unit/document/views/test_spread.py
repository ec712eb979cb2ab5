"""Few of many without losing an outlier, and means of what is known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_doctor.document.views.steps import known_mean, slowest_of_each

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(("values", "limit", "rows"), [
    ([], 2, []),
    ([5.0, 1.0], 2, [0, 1]),
    ([1.0, 5.0, 2.0], 2, [0, 1]),
    ([1.0, 5.0, 2.0, 3.0], 2, [1, 3]),
    ([4.0, 4.0, 2.0, 2.0], 2, [0, 2]),
    ([NAN, 0.0, NAN, NAN], 2, [1, 2]),
    ([9.0, 1.0, 1.0, 7.0, 1.0, 8.0], 3, [0, 3, 5]),
    ([1.0, 2.0, 3.0], 1, [2]),
])  # fmt: skip
def test_the_largest_of_each_bucket_stays(values: list[float], limit: int, rows: list[int]) -> None:
    assert slowest_of_each(np.array(values), limit).tolist() == rows


@given(st.lists(st.floats(0, 9), min_size=1, max_size=60), st.integers(1, 20))
def test_no_more_than_the_limit_and_the_largest_of_all_stay(
    values: list[float], limit: int
) -> None:
    rows = slowest_of_each(np.array(values), limit)
    assert len(rows) == min(limit, len(values))
    assert (np.diff(rows) > 0).all()
    assert max(np.array(values)[rows]) == max(values)


@pytest.mark.parametrize(
    ("values", "mean"),
    [([1.0, 3.0], 2.0), ([NAN, 3.0], 3.0), ([INF, 3.0], 3.0), ([NAN, NAN], NAN), ([0.0], 0.0)],
)
def test_a_mean_is_of_what_is_known(values: list[float], mean: float) -> None:
    table = np.array([values, values])
    assert np.array_equal(known_mean(table, axis=1), [mean, mean], equal_nan=True)
    assert np.array_equal(known_mean(table.T, axis=0), [mean, mean], equal_nan=True)
