from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_doctor_reports.charts.figure import bin_edges, slowest_columns, thin_line


def test_a_short_line_is_left_alone() -> None:
    line = thin_line([0.0, 1.0, None], [1.0, None, 3.0], limit=10)
    assert (line.times, line.values) == ([0.0, 1.0], [1.0, None])
    assert not line.lows


@given(st.lists(st.floats(-1e6, 1e6) | st.none(), min_size=3, max_size=200), st.integers(1, 50))
def test_a_thinned_line_keeps_its_extremes(values: list[float | None], limit: int) -> None:
    line = thin_line([float(at) for at in range(len(values))], values, limit)
    numbers = [value for value in values if value is not None]
    assert len(line.times) <= max(limit, len(values) if not line.lows else 0)
    if line.lows and numbers:
        assert max(value for value in line.highs if value is not None) == max(numbers)
        assert min(value for value in line.lows if value is not None) == min(numbers)


def test_of_equal_bins_the_slowest_column_is_kept_so_that_no_outlier_is_lost() -> None:
    rows = [[1.0, 3.0, None, 5.0, 1.0, 1.0], [None, None, 2.0, 2.0, 1.0, 90.0]]
    assert slowest_columns(rows, width=6, limit=3) == [1, 3, 5]
    assert slowest_columns(rows, width=6, limit=6) == [0, 1, 2, 3, 4, 5]
    assert slowest_columns([[None] * 6], width=6, limit=2) == [0, 3]


@pytest.mark.parametrize(("samples", "merged"), [(3, False), (4, False), (5, True)])
def test_samples_that_fit_are_drawn_as_they_are(samples: int, merged: bool) -> None:
    times, values = [float(at) for at in range(samples)], [float(at) for at in range(samples)]
    line = thin_line([*times, None], [*values, 9.0], limit=4)
    assert bool(line.lows) == merged
    if not merged:
        assert (line.times, line.values, line.lows, line.highs) == (times, values, [], [])


def test_a_point_stands_in_the_middle_of_what_it_stands_for() -> None:
    line = thin_line([float(at) for at in range(6)], [1.0, 2.0, None, 4.0, None, None], limit=2)
    assert line.times == [1.0, 4.0]
    assert line.values == [1.5, 4.0]
    assert (line.lows, line.highs) == ([1.0, 4.0], [2.0, 4.0])
    nothing = thin_line([0.0, 1.0, 2.0], [None, None, 3.0], limit=1)
    assert nothing.values == [3.0]
    empty = thin_line([0.0, 1.0], [None, None], limit=1)
    assert (empty.values, empty.lows, empty.highs) == ([None], [None], [None])


@given(st.integers(1, 50), st.integers(0, 200))
def test_bins_cover_all_and_are_nearly_equal(columns: int, more: int) -> None:
    cuts = bin_edges(columns + more, columns)
    assert [start for start, _ in cuts[1:]] == [end for _, end in cuts[:-1]]
    assert (cuts[0][0], cuts[-1][1]) == (0, columns + more)
    sizes = [end - start for start, end in cuts]
    assert max(sizes) - min(sizes) <= 1
