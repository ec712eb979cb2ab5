from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from grpo_doctor.analysis.intervals import innermost

spans = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=20)


@given(spans)
def test_each_moment_belongs_to_the_open_span_that_began_last(pairs: list[tuple[int, int]]) -> None:
    ordered = sorted(pairs, key=lambda span: (span[0], -span[1]))
    table = np.array(ordered, dtype=np.int64).reshape(-1, 2)
    pieces, owner = innermost(table[:, 0], table[:, 1])

    owners = {
        t: who
        for start, end, who in zip(
            pieces.start_ns.tolist(), pieces.end_ns.tolist(), owner.tolist(), strict=True
        )
        for t in range(start, end)
    }
    expected = {}
    for moment in range(41):
        open_spans = [i for i, (start, end) in enumerate(ordered) if start <= moment < end]
        if open_spans:
            expected[moment] = open_spans[-1]
    assert owners == expected
    assert (pieces.start_ns[1:] >= pieces.end_ns[:-1]).all()


def test_an_outer_span_returns_when_its_children_end() -> None:
    start = np.array([0, 2, 3, 6], dtype=np.int64)
    end = np.array([10, 5, 4, 7], dtype=np.int64)
    pieces, owner = innermost(start, end)
    assert owner.tolist() == [0, 1, 2, 1, 0, 3, 0]
    assert pieces.start_ns.tolist() == [0, 2, 3, 4, 5, 6, 7]


def test_nothing_gives_nothing() -> None:
    pieces, owner = innermost(np.empty(0, np.int64), np.empty(0, np.int64))
    assert not len(pieces)
    assert not len(owner)
