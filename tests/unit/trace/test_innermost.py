from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from grpo_doctor.trace.intervals import innermost

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
