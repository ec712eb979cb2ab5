from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from grpo_doctor_reports.model import Band
from grpo_doctor_reports.thinning import slowest_columns, thin_bands, thin_line


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


def test_bands_go_to_the_phase_that_covers_most_of_a_bucket() -> None:
    bands = [
        Band(0, phase, float(at) + offset, float(at) + end, open=False)
        for at in range(100)
        for phase, offset, end in (("rollout", 0.0, 0.7), ("train", 0.7, 1.0))
    ]
    thin = thin_bands(bands, end_s=100.0, limit=20)
    assert [(band.phase, band.start_s, band.end_s) for band in thin] == [("rollout", 0.0, 100.0)]


def test_open_bands_survive_thinning_and_gaps_stay_gaps() -> None:
    closed = [Band(3, "train", float(at), at + 1.0, open=False) for at in range(50)]
    hung = Band(3, "rollout", 80.0, 100.0, open=True)
    thin = thin_bands([*closed, hung], end_s=100.0, limit=10)
    assert thin[-1] == hung
    assert thin[0] == Band(3, "train", 0.0, 50.0, open=False)
    assert not any(band.start_s < 75 < band.end_s for band in thin)
