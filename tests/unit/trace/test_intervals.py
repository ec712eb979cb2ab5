from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from grpo_doctor.trace import intervals
from grpo_doctor.trace.intervals import Intervals

pairs = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=25)


def columns(pairs: list[tuple[int, int]]) -> tuple[intervals.Times, intervals.Times]:
    table = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return table[:, 0], table[:, 1]


def of(pairs: list[tuple[int, int]]) -> Intervals:
    return intervals.union(*columns(pairs))


def moments(pairs: list[tuple[int, int]]) -> set[int]:
    """The naive oracle: every covered unit of time by itself."""
    return {t for start, end in pairs for t in range(start, end)}


def listed(parts: Intervals) -> list[tuple[int, int]]:
    return list(zip(parts.start_ns.tolist(), parts.end_ns.tolist(), strict=True))


@given(pairs)
def test_a_union_covers_the_same_moments_and_is_disjoint(stretches: list[tuple[int, int]]) -> None:
    joined = of(stretches)
    assert moments(listed(joined)) == moments(stretches)
    assert (joined.end_ns > joined.start_ns).all()
    assert (joined.start_ns[1:] > joined.end_ns[:-1]).all()
    assert joined.total_ns == len(moments(stretches))


@given(pairs, pairs)
def test_intersections_and_differences_match_sets(
    left: list[tuple[int, int]], right: list[tuple[int, int]]
) -> None:
    shared = intervals.intersect(of(left), of(right))
    assert moments(listed(shared)) == moments(left) & moments(right)
    only = intervals.subtract(of(left), of(right))
    assert moments(listed(only.intervals)) == moments(left) - moments(right)


@given(pairs, pairs)
def test_overlaps_name_the_intervals_they_are_from(
    left: list[tuple[int, int]], right: list[tuple[int, int]]
) -> None:
    first, second = of(left), of(right)
    shared = intervals.overlaps(first, second)
    assert (shared.start_ns >= first.start_ns[shared.left]).all()
    assert (shared.end_ns <= second.end_ns[shared.right]).all()
    assert (shared.length_ns > 0).all()


@given(pairs, st.lists(st.integers(-5, 65), max_size=20))
def test_a_moment_lies_in_the_interval_that_has_begun_and_not_ended(
    stretches: list[tuple[int, int]], instants: list[int]
) -> None:
    inside, at = of(stretches), np.array(instants, dtype=np.int64)
    rows = [
        next((row for row, (start, end) in enumerate(listed(inside)) if start <= moment < end), -1)
        for moment in instants
    ]
    assert intervals.holding(inside, at).tolist() == rows
    assert intervals.covers(inside, at).tolist() == [row >= 0 for row in rows]
    touching = intervals.cut(np.arange(60))  # neighbours share a moment: the later one has it
    assert intervals.holding(touching, np.arange(60)).tolist() == list(range(1, 61))


@given(st.lists(st.integers(0, 60), max_size=10), pairs)
def test_cutting_loses_nothing(cuts: list[int], stretches: list[tuple[int, int]]) -> None:
    pieces = intervals.overlaps(of(stretches), intervals.cut(np.array(cuts, dtype=np.int64)))
    assert int(pieces.length_ns.sum()) == of(stretches).total_ns
    assert not any(start < cut < end for start, end in listed(pieces.intervals) for cut in cuts)


@given(pairs)
def test_what_is_covered_before_a_moment(stretches: list[tuple[int, int]]) -> None:
    covered, instants = moments(stretches), np.arange(62)
    expected = [sum(unit < moment for unit in covered) for moment in range(62)]
    assert intervals.covered_before(of(stretches), instants).tolist() == expected
