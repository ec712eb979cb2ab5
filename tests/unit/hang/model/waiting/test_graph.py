"""The wait-for graph, against slow and plain ways to find the same."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_doctor.hang.model.nodes import Node, RankNode
from grpo_doctor.hang.model.waiting.waits import Graph, Link

NODES = st.integers(0, 6).map(RankNode)
LINKS = st.lists(
    st.builds(Link, NODES, st.frozensets(NODES, min_size=1), st.just("collective")), max_size=20
)


def _reached(links: list[Link], node: Node) -> set[Node]:
    reached: set[Node] = set()
    while True:
        waiting = [link for link in links if link.source in {node, *reached}]
        more = {end for link in waiting for end in link.targets - {link.source}} - reached
        if not more:
            return reached
        reached |= more


@given(LINKS)
def test_reach_is_every_node_at_the_end_of_a_way(links: list[Link]) -> None:
    graph = Graph.of(links)
    outward = [link for link in links if link.targets - {link.source}]
    for node in {link.source for link in outward}:
        assert graph.reach[node] == _reached(outward, node)


@given(LINKS)
def test_the_ring_is_one_and_its_order_does_not_depend_on_that_of_links(links: list[Link]) -> None:
    graph = Graph.of(links)
    ring = graph.cycle()
    assert bool(ring) == any(node in reached for node, reached in graph.reach.items())
    for waiter, following in zip(ring, (*ring[1:], *ring[:1]), strict=True):
        assert following in graph.needed(waiter)
    assert Graph.of(reversed(links)).cycle() == ring


@given(LINKS)
def test_a_component_is_all_that_wait_for_each_other(links: list[Link]) -> None:
    graph = Graph.of(links)
    for node in map(RankNode, range(7)):
        ring = {other for other in _reached(links, node) if node in _reached(links, other)}
        assert graph.component(node) == {node, *ring}


@pytest.mark.parametrize(
    ("edges", "ring"),
    [
        (((0, 1), (1, 2), (2, 0), (5, 4), (4, 5)), (4, 5)),
        (((3, 4), (4, 5), (5, 3), (0, 1), (1, 2), (2, 0)), (0, 1, 2)),
    ],
)
def test_of_two_rings_the_shorter_is_named_or_that_of_the_smallest_node(
    edges: tuple[tuple[int, int], ...], ring: tuple[int, ...]
) -> None:
    links = [
        Link(RankNode(source), frozenset({RankNode(target)}), "collective")
        for source, target in edges
    ]
    assert Graph.of(links).cycle() == tuple(map(RankNode, ring))
