"""The wait-for graph: alike is one box, and whatever the size the picture stays readable."""

from __future__ import annotations

import random
from itertools import combinations
from typing import Any

import pytest

from grpo_doctor_reports.hang import words
from grpo_doctor_reports.hang.graph import WIDEST, Graph, make_graph
from grpo_doctor_reports.hang.layout import PlacedBox, draw
from grpo_doctor_reports.schema.attach import read_verdict
from tests.demo_verdicts import VISITS

READABLE_PX = 1_250  # 13 px become 7.8 px on a page of 800 px; wider ones scroll
WIDEST_PX = 1_750


def graph_of(edges: list[tuple[str, str]], guilty: tuple[str, ...] = (), **graph: Any) -> Graph:
    ids = dict.fromkeys(end for edge in edges for end in edge)
    nodes = [{"id": first, "label": first.replace(":", " "), "role": first.partition(":")[0],
              "guilty": first in guilty} for first in ids]  # fmt: skip
    waits = [{"source": a, "target": b, "kind": "collective"} for a, b in edges]
    return make_graph(
        read_verdict({"schema": 1, "graph": {"nodes": nodes, "edges": waits, **graph}})
    )


def labels(graph: Graph) -> set[str]:
    return {box.label for box in graph.boxes}


def test_the_order_of_the_document_does_not_matter() -> None:
    edges = [(f"rank:{r}", f"rank:{r % 4}") for r in range(4, 40)] + [("rank:0", "rank:1")]
    first = graph_of(edges)
    for seed in range(5):
        shuffled = random.Random(seed).sample(edges, len(edges))
        assert labels(graph_of(shuffled)) == labels(first)


def overlap(first: PlacedBox, second: PlacedBox) -> bool:
    return (
        first.x < second.x + second.width
        and second.x < first.x + first.width
        and first.y < second.y + second.height
        and second.y < first.y + first.height
    )


def check_drawing(graph: Graph, at_most_px: float) -> None:
    drawing = draw(graph)
    assert drawing is not None
    assert drawing.width <= at_most_px
    assert len(drawing.boxes) == len(graph.boxes)
    for first, second in combinations(drawing.boxes, 2):
        assert not overlap(first, second)
    for box in drawing.boxes:
        assert box.x >= 0
        assert box.x + box.width <= drawing.width
        assert box.y + box.height <= drawing.height


@pytest.mark.parametrize(
    "name", [name for name in VISITS if name not in {"nothing", "healthy", "slow"}]
)
def test_every_demo_is_drawn_without_overlaps(name: str) -> None:
    check_drawing(make_graph(read_verdict(VISITS[name]())), READABLE_PX)


@pytest.mark.parametrize("seed", range(15))
def test_any_graph_is_drawn_without_overlaps(seed: int) -> None:
    dice = random.Random(seed)
    ids = [f"rank:{r}" for r in range(dice.randint(2, 64))]
    edges = [(dice.choice(ids), dice.choice(ids)) for _ in range(dice.randint(1, 90))]
    cycle = dice.sample(ids, dice.randint(0, min(12, len(ids))))
    graph = graph_of(edges, guilty=tuple(dice.sample(ids, 2)), cycle=cycle)
    check_drawing(graph, WIDEST_PX)
    for depth in {box.depth for box in graph.boxes}:
        row = [box for box in graph.boxes if box.depth == depth and not box.in_cycle]
        assert len(row) <= WIDEST


def test_nothing_is_drawn_of_nothing() -> None:
    assert draw(make_graph(read_verdict({"schema": 1}))) is None


def of_edges(edges: list[tuple[str, str]]) -> Graph:
    waits = [{"source": a, "target": b, "kind": "p2p"} for a, b in edges]
    return make_graph(read_verdict({"schema": 1, "graph": {"edges": waits}}))


@pytest.mark.parametrize("end", ["rank:0-", "rank:-3", "rank:3-1", "rank:1,,2", "rank:x-y"])
def test_an_end_that_is_no_list_of_ranks_is_harmless(end: str) -> None:
    assert len(of_edges([(end, "rank:9")]).boxes) <= 3


def test_a_short_text_cannot_stand_for_more_ranks_than_there_are() -> None:
    edges = [("rank:0-999999999", "rank:0-999999999")] * 500
    visit = read_verdict({"schema": 1, "graph": {"edges": [
        {"source": a, "target": b, "kind": "p2p"} for a, b in edges
    ]}})  # fmt: skip
    assert (
        sum(len(wait.sources) + len(wait.targets) for wait in words.waits_of(visit.graph)) < 300_000
    )
