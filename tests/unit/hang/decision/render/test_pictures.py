"""What the page draws, of jobs of any size."""

from __future__ import annotations

import json

from grpo_doctor.hang.decision.render.pictures import edges_of
from grpo_doctor.hang.diagnose import diagnose
from grpo_doctor.hang.model.nodes import ProcessNode, RankNode
from grpo_doctor.hang.model.waiting.graph import Graph, Link
from grpo_doctor.hang.verdict import encoded_document
from grpo_doctor_reports.hang.document import read_visit
from grpo_doctor_reports.hang.graph import make_graph
from tests.evidence import EvidenceBuilder, collective

CAMP = 200
LARGEST = 2_000_000  # bytes; one edge for each wait of the two camps alone is 8 MB


def ends(*links: Link) -> list[tuple[str, str]]:
    return [(edge.source, edge.target) for edge in edges_of(Graph.of(links))]


def test_ranks_that_wait_for_the_same_are_one_edge() -> None:
    links = [
        Link(RankNode(a), frozenset({RankNode(5), RankNode(9)}), "collective", "x")
        for a in (0, 1, 2, 7)
    ]
    assert ends(*links) == [("rank:0-2,7", "rank:5,9")]


def test_what_is_no_rank_keeps_an_edge_of_its_own() -> None:
    engines = frozenset({ProcessNode(70), ProcessNode(71)})
    links = [Link(RankNode(a), engines, "engine") for a in (0, 1)]
    assert ends(*links) == [("rank:0,1", "pid:70"), ("rank:0,1", "pid:71")]


def test_waits_of_several_kinds_stay_apart() -> None:
    links = [Link(RankNode(0), frozenset({RankNode(1)}), kind) for kind in ("collective", "p2p")]
    assert ends(*links) == [("rank:0", "rank:1")] * 2


def test_two_camps_of_many_ranks_make_a_small_document() -> None:
    build = EvidenceBuilder(ranks=2 * CAMP)
    for rank in range(CAMP):
        build.rank(rank).stack = collective("broadcast")
        build.joins[rank] = []
        build.calls(rank, "broadcast")
    document = encoded_document(diagnose(build.build()))
    assert len(document) < LARGEST
    visit = read_visit(json.loads(document))
    (there,) = [wait for wait in visit.waits if "rank:0" in wait.sources]
    assert len(there.sources) == len(there.targets) == CAMP
    assert len(make_graph(visit).boxes) <= 4  # the ring of one of each camp, and the rest
