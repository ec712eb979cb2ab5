"""Where waits end, against a slow and plain way to find the same; and a thousand ranks of it."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_doctor.hang import dumps
from grpo_doctor.hang.model.matching.graph import reach, sinks
from grpo_doctor.hang.model.matching.match import match
from tests.dumps.formats import dumps as dumps_of
from tests.dumps.simulator import Call, job

NODES = st.integers(0, 7)
RANKS = 1024


def _reached(graph: dict[int, frozenset[int]], node: int) -> frozenset[int]:
    reached: set[int] = set()
    while True:
        more = {other for source in {node, *reached} for other in graph.get(source, ())} - reached
        if not more:
            return frozenset(reached)
        reached |= more


GRAPHS = st.dictionaries(NODES, st.frozensets(NODES, max_size=3))


@given(GRAPHS)
def test_a_sink_is_left_by_nothing_and_everyone_of_it_leads_to_everyone(
    graph: dict[int, frozenset[int]],
) -> None:
    nodes = sorted({*graph, *(other for needed in graph.values() for other in needed)})
    components = list(sinks(nodes, lambda node: sorted(graph.get(node, ()))))
    reached = {node: _reached(graph, node) for node in nodes}
    expected = {
        frozenset({node, *reached[node]})
        for node in nodes
        if all(node in reached[other] for other in reached[node])
    }
    assert set(components) == expected
    assert len(components) == len(expected)


@given(GRAPHS)
def test_what_can_be_reached(graph: dict[int, frozenset[int]]) -> None:
    assert reach(graph) == {node: _reached(graph, node) for node in graph}


@pytest.mark.heavy
@pytest.mark.slow
def test_a_thousand_ranks_that_take_two_groups_in_two_orders_are_judged_in_seconds() -> None:
    """One camp has the first group at its head and the other one the second."""
    groups = {"0": range(RANKS), "1": range(RANKS)}
    rounds = [Call("all_reduce", "0"), Call("all_gather", "1")]
    programs = {
        rank: [*rounds * 3, *(rounds if rank % 3 else rounds[::-1])] for rank in range(RANKS)
    }
    recordings = dumps.read(dumps_of(job(groups, programs).run()))
    began_s = time.process_time()
    matched = match(recordings)
    took_s = time.process_time() - began_s
    assert {blame.rank for blame in matched.blame} == set(range(0, RANKS, 3))
    assert took_s < 3.0
