"""The wait-for graph."""

from __future__ import annotations

from grpo_doctor.hang.model import scene
from grpo_doctor.hang.model.nodes import ProcessNode, RankNode
from grpo_doctor.hang.model.waiting import waits
from grpo_doctor.hang.model.waiting.graph import Graph
from grpo_doctor_probes.evidence import CallArguments
from tests.evidence import EvidenceBuilder, collective, frames

REWARD = frames("reward /home/me/train.py:40", "main /home/me/train.py:9")


def graph(build: EvidenceBuilder) -> Graph:
    return waits.build(scene.build(build.build()))


def test_ranks_wait_for_the_one_that_is_elsewhere() -> None:
    build = EvidenceBuilder()
    build.elsewhere(2, REWARD)
    found = graph(build)
    assert found.waiters(RankNode(2)) == {RankNode(0), RankNode(1), RankNode(3)}
    assert found.out(RankNode(2)) == ()


def test_the_same_without_recordings() -> None:
    build = EvidenceBuilder(recorded=False)
    build.elsewhere(2, REWARD)
    assert graph(build).waiters(RankNode(2)) == {RankNode(0), RankNode(1), RankNode(3)}


def test_a_chain_through_a_pipe_to_a_child() -> None:
    build = EvidenceBuilder()
    build.elsewhere(2, REWARD).blocks("pipe-write", "pipe:[7]", 200)
    build.child(2, "helper", pid=200).state = "T"
    found = graph(build)
    assert ProcessNode(200) in found.reach[RankNode(0)]
    assert [link.kind for link in found.out(RankNode(2))] == ["pipe"]


def test_a_lock_in_a_stranger_s_hands() -> None:
    build = EvidenceBuilder()
    build.elsewhere(1, REWARD).blocks("file-lock", "/cache/lock", 4711)
    assert graph(build).needed(RankNode(1)) == {ProcessNode(4711)}


def test_a_receive_waits_for_its_source_alone() -> None:
    build = EvidenceBuilder()
    build.elsewhere(1, collective("recv"))
    build.arguments = [CallArguments(101, "recv", {"src": "3"})]
    assert graph(build).needed(RankNode(1)) == {RankNode(3)}


def test_two_ranks_in_a_ring() -> None:
    build = EvidenceBuilder(ranks=2)
    build.elsewhere(0, REWARD).blocks("file-lock", "/cache/lock", 101)
    found = graph(build)
    assert found.cycle() == (RankNode(0), RankNode(1))
    assert RankNode(0) in found.reach[RankNode(0)]


def test_a_stopped_rank_waits_for_nobody() -> None:
    build = EvidenceBuilder()
    build.rank(2).state = "T"
    assert graph(build).out(RankNode(2)) == ()
