"""The wait-for graph: alike is one box, and whatever the size the picture stays readable."""

from __future__ import annotations

import random
from itertools import combinations
from typing import Any

import pytest

from grpo_doctor_reports.hang import words
from grpo_doctor_reports.hang.graph import LONGEST_CYCLE, WIDEST, Graph, make_graph
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


def test_ranks_that_wait_alike_are_one_box() -> None:
    graph = graph_of([(f"rank:{r}", "rank:3") for r in range(64) if r != 3], guilty=("rank:3",))
    assert labels(graph) == {"ranks 0-2, 4-63", "rank 3"}
    assert [box.label for box in graph.boxes if box.culprit] == ["rank 3"]


def test_workers_of_alike_ranks_are_alike() -> None:
    edges = [(f"rank:{r}", "rank:9") for r in range(3)]
    edges += [(f"pid:{r}", f"rank:{r}") for r in range(3)]
    assert labels(graph_of(edges)) == {"rank 9", "ranks 0-2", "pid 0 and 2 more"}


def test_a_chain_stays_a_chain() -> None:
    graph = graph_of([("rank:0", "rank:1"), ("rank:1", "pid:7"), ("pid:7", "file:/lock")])
    depth = {box.label: box.depth for box in graph.boxes}
    assert depth == {"rank 0": 3, "rank 1": 2, "pid 7": 1, "file /lock": 0}


def test_the_order_of_the_document_does_not_matter() -> None:
    edges = [(f"rank:{r}", f"rank:{r % 4}") for r in range(4, 40)] + [("rank:0", "rank:1")]
    first = graph_of(edges)
    for seed in range(5):
        shuffled = random.Random(seed).sample(edges, len(edges))
        assert labels(graph_of(shuffled)) == labels(first)


def test_a_cycle_is_kept_apart_and_shortened() -> None:
    ring = [f"rank:{r}" for r in range(64)]
    graph = graph_of(list(zip(ring, ring[1:] + ring[:1])), cycle=ring)
    assert len(graph.cycle) == LONGEST_CYCLE
    assert "ranks 7-63" in labels(graph)
    around = {(link.source, link.target) for link in graph.links}
    for at, key in enumerate(graph.cycle):
        assert (key, graph.cycle[(at + 1) % LONGEST_CYCLE]) in around


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


def test_an_edge_of_many_ranks_is_all_of_them() -> None:
    pairs = [(f"rank:{a}", f"rank:{b}") for a in (0, 1, 2, 7) for b in (4, 5, 6)]
    together = of_edges([("rank:0-2,7", "rank:4-6")])
    assert labels(together) == labels(of_edges(pairs)) == {"ranks 0-2, 7", "ranks 4-6"}
    assert len(together.links) == 1


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


@pytest.mark.parametrize("size", [LONGEST_CYCLE, LONGEST_CYCLE + 1])
def test_a_cycle_of_at_most_eight_has_a_box_each(size: int) -> None:
    ring = [f"rank:{r}" for r in range(size)]
    graph = graph_of(list(zip(ring, ring[1:] + ring[:1], strict=True)), cycle=ring)
    last = "rank 7" if size == LONGEST_CYCLE else "ranks 7-8"
    assert labels(graph) == {*(f"rank {r}" for r in range(7)), last}
    assert {box.in_cycle for box in graph.boxes} == {True}


def test_a_ring_names_each_point_once_and_none_that_is_unknown() -> None:
    edges = [("rank:0", "rank:1"), ("rank:1", "rank:0")]
    graph = graph_of(edges, cycle=["rank:0", "rank:1", "rank:0", "rank:9"])
    assert graph.cycle == ("rank:0", "rank:1")


def chain(length: int) -> Graph:
    return graph_of([(f"pid:{at + 1}", f"pid:{at}") for at in range(length)])


@pytest.mark.parametrize(
    ("waits", "top"), [(3, "pid 3"), (4, "pid 4"), (5, "pid 4 and 1 more"), (9, "pid 4 and 5 more")]
)
def test_what_waits_behind_four_others_is_one_box(waits: int, top: str) -> None:
    deepest = max(chain(waits).boxes, key=lambda box: box.depth)
    assert (deepest.label, deepest.depth) == (top, min(waits, 4))


def test_what_waits_for_a_cycle_is_next_to_it() -> None:
    edges = [("rank:0", "rank:1"), ("rank:1", "rank:0"), ("pid:7", "rank:0"), ("pid:8", "pid:7")]
    graph = graph_of(edges, cycle=["rank:0", "rank:1"])
    assert {box.label: box.depth for box in graph.boxes} == {
        "rank 0": 0, "rank 1": 0, "pid 7": 1, "pid 8": 2,
    }  # fmt: skip


def test_a_box_is_above_the_longest_of_its_ways_to_an_end() -> None:
    graph = graph_of([("pid:3", "pid:1"), ("pid:3", "pid:2"), ("pid:2", "pid:1")])
    assert {box.label: box.depth for box in graph.boxes} == {"pid 1": 0, "pid 2": 1, "pid 3": 2}


def crowd(count: int, guilty: int | None = None) -> list[str]:
    """Points beside each other of which no two are alike."""
    nodes = [{"id": f"pid:{at}", "label": f"pid {at}", "role": f"role {at}", "guilty": at == guilty}
             for at in range(count)]  # fmt: skip
    graph = make_graph(read_verdict({"schema": 1, "graph": {"nodes": nodes}}))
    return [box.label for box in graph.boxes]


def test_of_more_than_four_boxes_of_a_row_the_last_are_one() -> None:
    assert crowd(4) == ["pid 0", "pid 1", "pid 2", "pid 3"]
    assert crowd(5) == ["pid 0", "pid 1", "pid 2", "pid 3 and 1 more"]
    assert crowd(6) == ["pid 0", "pid 1", "pid 2", "pid 3 and 2 more"]


def test_the_guilty_keep_a_box_of_their_own_in_a_crowd() -> None:
    assert set(crowd(6, guilty=5)) == {"pid 0", "pid 1", "pid 5", "pid 2 and 2 more"}


def test_a_box_of_ranks_and_others_is_named_by_its_ranks() -> None:
    roles = [{"id": end, "role": "one", "label": end} for end in ("rank:0", "rank:1", "pid:7")]
    waits = [{"source": node["id"], "target": "file:/lock"} for node in roles]
    graph = make_graph(read_verdict({"schema": 1, "graph": {"nodes": roles, "edges": waits}}))
    assert labels(graph) == {"ranks 0-1 and 1 more", "file:/lock"}
    assert [box.is_process for box in graph.boxes] == [True, False]


def waits_of(*edges: dict[str, str]) -> list[tuple[str, str, str]]:
    graph = make_graph(read_verdict({"schema": 1, "graph": {"edges": list(edges)}}))
    return [(link.source, link.target, link.label) for link in graph.links]


def test_an_arrow_says_what_its_waits_have_in_common() -> None:
    ends = {"source": "pid:1", "target": "pid:2"}
    assert waits_of({**ends, "kind": "pipe", "label": "stdin"}) == [("pid:1", "pid:2", "stdin")]
    assert waits_of({**ends, "kind": "pipe"}) == [("pid:1", "pid:2", "pipe")]
    two = [{**ends, "kind": "pipe", "label": label} for label in ("stdin", "stdout")]
    assert waits_of(*two) == [("pid:1", "pid:2", "pipe")]
    kinds = [{**ends, "kind": kind, "label": label} for kind, label in ("pa", "sb", "fc")]
    assert waits_of(*kinds) == [("pid:1", "pid:2", "f, p")]


def test_a_wait_for_itself_is_not_drawn() -> None:
    assert waits_of({"source": "pid:1", "target": "pid:1"}) == []
    assert waits_of({"source": "rank:0-1", "target": "rank:0-1", "kind": "p2p"}) == []


def of_ranks(**parts: Any) -> dict[str, str]:
    """Labels and details of two ranks that wait for a third."""
    edges = [{"source": "rank:0-1", "target": "rank:2", "kind": "p2p"}]
    graph = make_graph(read_verdict({"schema": 1, "graph": {"edges": edges}, **parts}))
    return {box.label: box.detail for box in graph.boxes}


def process(rank: int, frame: str, role: str = "rank") -> dict[str, Any]:
    return {"rank": rank, "role": role, "where": frame}


def test_where_a_box_stands_is_said_if_all_of_it_stand_there() -> None:
    assert of_ranks() == {"ranks 0-1": "", "rank:2": ""}
    alike = [process(0, "a.py:1"), process(1, "a.py:1"), process(2, "b.py:2")]
    assert of_ranks(ranks=alike) == {"ranks 0-1": "a.py:1", "rank:2": "b.py:2"}
    assert of_ranks(ranks=alike[:1]) == {"ranks 0-1": "", "rank:2": ""}
    assert of_ranks(ranks=[process(2, "b.py:2", "worker")])["rank:2"] == ""


def test_the_host_of_a_box_is_said_if_all_of_it_are_there() -> None:
    hosts = [{"name": "a", "ranks": [0, 1]}, {"name": "b", "ranks": [2]}]
    assert set(of_ranks(job={"hosts": hosts})) == {"ranks 0-1 on a", "rank:2 on b"}
    assert set(of_ranks(job={"hosts": hosts[:1]})) == {"ranks 0-1 on a", "rank:2"}
    hosts = [{"name": "a", "ranks": [0]}, {"name": "b", "ranks": [1]}]
    assert set(of_ranks(job={"hosts": hosts})) == {"ranks 0-1", "rank:2"}
