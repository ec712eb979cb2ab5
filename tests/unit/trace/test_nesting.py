"""Lanes whose spans nest, whatever overlapped before."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from grpo_doctor.trace.events import CLAMP_NS, MAX_LANES, nest

Spans = tuple[NDArray[np.int64], NDArray[np.int64]]


def ordered(pairs: list[tuple[int, int]]) -> Spans:
    """Starts ascending, of equal starts the longest first."""
    pairs = sorted(((s, s + d) for s, d in pairs), key=lambda p: (p[0], -p[1]))
    return (
        np.array([s for s, _ in pairs], dtype=np.int64),
        np.array([e for _, e in pairs], dtype=np.int64),
    )


# Times of some lengths of the clamp, so that both sides of it are met.
TIMES = st.integers(0, 20).map(lambda n: n * CLAMP_NS // 3)
PAIRS = st.lists(st.tuples(TIMES, TIMES), max_size=40)


@given(PAIRS)
def test_spans_of_a_lane_nest(pairs: list[tuple[int, int]]) -> None:
    starts, given_ends = ordered(pairs)
    ends, lanes = nest(starts, given_ends)
    for lane in set(lanes.tolist()):
        stack: list[int] = []
        for start, end in zip(starts[lanes == lane].tolist(), ends[lanes == lane].tolist()):
            while stack and stack[-1] <= start:
                stack.pop()
            assert not stack or end <= stack[-1], "a child ends within its parent"
            stack.append(end)


@given(PAIRS)
def test_ends_only_shrink_and_only_by_the_clamp(pairs: list[tuple[int, int]]) -> None:
    starts, given_ends = ordered(pairs)
    before = given_ends.copy()
    ends, lanes = nest(starts, given_ends)
    assert np.array_equal(given_ends, before), "the input is left as it is"
    assert np.all(ends <= before)
    assert np.all(before - ends <= CLAMP_NS)
    assert np.all(ends >= starts)
    assert len(ends) == len(lanes) == len(starts)


@given(PAIRS)
def test_nesting_again_changes_nothing(pairs: list[tuple[int, int]]) -> None:
    starts, given_ends = ordered(pairs)
    ends, lanes = nest(starts, given_ends)
    for lane in set(lanes.tolist()):
        again, other = nest(starts[lanes == lane], ends[lanes == lane])
        assert np.array_equal(again, ends[lanes == lane])
        assert not other.any()


def test_thousands_at_once_end_on_the_last_lane_unharmed() -> None:
    starts = np.arange(5000, dtype=np.int64) * 2 * CLAMP_NS
    ends = starts + 10_000 * CLAMP_NS
    clamped, lanes = nest(starts, ends)
    assert lanes.max() == MAX_LANES - 1
    assert np.array_equal(clamped, ends)


def test_an_overlap_as_long_as_the_clamp_is_none() -> None:
    for over, lane, end in ((CLAMP_NS, 0, 1_000_000), (CLAMP_NS + 1, 1, 1_000_001 + CLAMP_NS)):
        ends, lanes = nest(*ordered([(0, 1_000_000), (500_000, 500_000 + over)]))
        assert (ends.tolist(), lanes.tolist()) == ([1_000_000, end], [0, lane])


def test_as_many_at_once_as_there_are_lanes_have_one_each() -> None:
    starts = np.arange(MAX_LANES + 2, dtype=np.int64) * 2 * CLAMP_NS
    _, lanes = nest(starts, starts + 10_000 * CLAMP_NS)
    assert lanes.tolist() == [*range(MAX_LANES), MAX_LANES - 1, MAX_LANES - 1]


def test_no_spans() -> None:
    ends, lanes = nest(*ordered([]))
    assert len(ends) == len(lanes) == 0
