from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from grpo_doctor_reports.thinning import slowest_columns, thin_line


def test_a_short_line_is_left_alone() -> None:
    line = thin_line([0.0, 1.0, None], [1.0, None, 3.0], limit=10)
    assert (line.times, line.values) == ([0.0, 1.0], [1.0, None])
    assert not line.is_merged


@given(st.lists(st.floats(-1e6, 1e6) | st.none(), min_size=3, max_size=200), st.integers(1, 50))
def test_a_thinned_line_keeps_its_extremes(values: list[float | None], limit: int) -> None:
    line = thin_line([float(at) for at in range(len(values))], values, limit)
    known = [value for value in values if value is not None]
    assert len(line.times) <= max(limit, len(values) if not line.is_merged else 0)
    if line.is_merged and known:
        assert max(value for value in line.highs if value is not None) == max(known)
        assert min(value for value in line.lows if value is not None) == min(known)


def test_of_equal_bins_the_slowest_column_is_kept_so_that_no_outlier_is_lost() -> None:
    rows = [[1.0, 3.0, None, 5.0, 1.0, 1.0], [None, None, 2.0, 2.0, 1.0, 90.0]]
    assert slowest_columns(rows, width=6, limit=3) == [1, 3, 5]
    assert slowest_columns(rows, width=6, limit=6) == [0, 1, 2, 3, 4, 5]
    assert slowest_columns([[None] * 6], width=6, limit=2) == [0, 3]
