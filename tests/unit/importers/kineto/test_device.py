"""Stretches of time in which a device was at work."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_doctor.importers.kineto.rank import (
    Activity,
    covered_ns,
    covered_percent,
    merged,
    nanoseconds,
)

Pairs = list[tuple[int, int]]
PAIRS = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 20)).map(lambda p: (p[0], p[0] + p[1])),
    max_size=12,
)


def pairs_of(times: tuple[np.ndarray, np.ndarray]) -> Pairs:
    return list(zip(times[0].tolist(), times[1].tolist(), strict=True))


def union(pairs: Pairs) -> tuple[np.ndarray, np.ndarray]:
    table = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return merged(table[:, 0], table[:, 1])


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        ([], []),
        ([(3, 5)], [(3, 5)]),
        ([(5, 8), (0, 2)], [(0, 2), (5, 8)]),
        ([(0, 5), (5, 8)], [(0, 8)]),  # those that touch are one
        ([(0, 9), (2, 3), (10, 12)], [(0, 9), (10, 12)]),
        ([(0, 4), (2, 6), (7, 8)], [(0, 6), (7, 8)]),
    ],
)
def test_stretches_are_merged_where_they_meet(pairs: Pairs, expected: Pairs) -> None:
    assert pairs_of(union(pairs)) == expected


@given(PAIRS, st.lists(st.integers(0, 90), min_size=2, max_size=6).map(sorted))
def test_what_is_covered_is_what_a_count_of_moments_says(pairs: Pairs, edges: list[int]) -> None:
    moments = {m for begin, end in pairs for m in range(begin, end)}
    counts = [sum(m in moments for m in range(a, b)) for a, b in itertools.pairwise(edges)]
    begins, ends = np.array(edges[:-1]), np.array(edges[1:])
    # Since 1970 nanoseconds have no room in a float64.
    since = 1_700_000_000_000_000_000
    for zero in (0, since):
        stretches = union([(begin + zero, end + zero) for begin, end in pairs])
        covered = covered_ns(stretches, begins + zero, ends + zero)
        assert covered.tolist() == pytest.approx(counts)


def test_a_share_is_of_the_time_between_its_edges() -> None:
    stretches = union([(10, 20), (30, 35)])
    shares = covered_percent(stretches, np.array([0, 10, 20, 40, 40]))
    assert shares.tolist() == [0, 100, 25, 0]
    assert covered_percent(union([]), np.array([0, 10])).tolist() == [0]


@pytest.mark.parametrize(
    ("us", "ns"),
    [
        (0.0, 0), (1.5, 1500), (0.0004, 0), (0.0006, 1), (2.9996, 3000),
        (1669783687384669.25, 1_669_783_687_384_669_250),
    ],
)  # fmt: skip
def test_microseconds_become_nanoseconds(us: float, ns: int) -> None:
    assert nanoseconds(us) == ns
    activity = Activity()
    activity.start_us.append(us)
    activity.length_us.append(1.25)
    assert pairs_of(activity.merged(100)) == [(ns + 100, ns + 1350)]


def test_kernels_in_any_order_are_one_activity() -> None:
    activity = Activity()
    activity.start_us.extend([5.0, 1.0, 2.0])
    activity.length_us.extend([2.0, 1.0, 0.5])
    assert pairs_of(activity.merged(0)) == [(1000, 2500), (5000, 7000)]
