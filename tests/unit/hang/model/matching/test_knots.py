"""Sets of ranks that all wait for each other, against a slow and plain way to find the same."""

from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st

from grpo_doctor.hang.model.matching.waits import knots

RANKS = st.integers(0, 7)


def _reached(graph: dict[int, set[int]], rank: int) -> set[int]:
    found: set[int] = set()
    while True:
        more = {other for one in {rank, *found} for other in graph.get(one, ())} - found
        if not more:
            return found
        found |= more


@given(st.dictionaries(RANKS, st.sets(RANKS, max_size=3)))
def test_everyone_of_a_knot_waits_for_everyone_of_it(graph: dict[int, set[int]]) -> None:
    reached = {rank: _reached(graph, rank) for rank in graph}
    together = {
        tuple(sorted(other for other in reached[rank] if rank in reached.get(other, ())))
        for rank in graph
    }
    found = knots(graph)
    assert set(found) == together - {()}
    assert list(found) == sorted(found)


def test_a_thousand_ranks_in_two_camps_take_no_minute() -> None:
    camps = {rank: set(range(1 - rank % 2, 1024, 2)) for rank in range(1024)}
    began_s = time.process_time()
    assert knots(camps) == (tuple(range(1024)),)
    assert time.process_time() - began_s < 5.0
