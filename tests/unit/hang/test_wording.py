"""Ranks, times and sizes in words."""

from __future__ import annotations

import pytest

from grpo_doctor.hang.wording import bytes_text, ranks_text, seconds_text


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        ((), ""),
        ((2,), "rank 2"),
        ((1, 0), "ranks 0, 1"),
        ((0, 1, 2, 3, 5), "ranks 0-3, 5"),
        ((7, 7), "rank 7"),
    ],
)
def test_ranks(ranks: tuple[int, ...], text: str) -> None:
    assert ranks_text(ranks) == text


def test_units() -> None:
    assert [seconds_text(s) for s in (0.42, 12, 300, 9000)] == ["0.4 s", "12 s", "5 min", "2.5 h"]
    assert [bytes_text(b) for b in (12, 1_200, 3e9)] == ["12 B", "1.2 kB", "3.0 GB"]
