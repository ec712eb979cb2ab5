"""The wait-for graph."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from grpo_doctor.hang.model import view
from grpo_doctor.hang.model.matching.model import Matching, Wait
from grpo_doctor.hang.model.nodes import Node, ProcessNode, RankNode
from grpo_doctor.hang.model.waiting import waits
from grpo_doctor.hang.model.waiting.waits import Graph, asks_engine
from grpo_doctor_probes.evidence import Evidence, Role
from tests.evidence import EvidenceBuilder, frames

REWARD = frames("reward /home/me/train.py:40", "main /home/me/train.py:9")


def graph(build: EvidenceBuilder) -> Graph:
    return waits.build(view.build(build.build()))


def test_a_lock_in_a_stranger_s_hands() -> None:
    build = EvidenceBuilder()
    build.elsewhere(1, REWARD).blocks("file-lock", "/cache/lock", 4711)
    assert graph(build).needed(RankNode(1)) == {ProcessNode(4711)}


# Waits that recordings and stacks show.


def links(graph: Graph, node: Node) -> list[tuple[str, set[Node], str]]:
    return [(link.kind, set(link.targets), link.label) for link in graph.out(node)]


def recorded(*waits_of: Wait, build: EvidenceBuilder | None = None) -> Graph:
    """The graph of a job whose recordings show these waits and nothing else."""
    model = view.build((build or EvidenceBuilder()).build())
    return waits.build(replace(model, matching=Matching(waits=waits_of)))


def test_a_rank_that_has_joined_waits_for_whoever_is_in_no_call() -> None:
    build = EvidenceBuilder()
    build.elsewhere(3, REWARD)
    joined = Wait(1, "0", 7, "gather", (2,), "joined")
    assert links(recorded(joined, build=build), RankNode(1)) == [
        ("collective", {RankNode(3)}, "all_reduce")
    ]


def test_a_rank_that_got_on_since_or_is_on_another_host() -> None:
    build = EvidenceBuilder()
    build.elsewhere(1, REWARD)
    waits_of = [Wait(rank, "0", 7, "gather", (2,), "missing") for rank in (1, 9)]
    wait_graph = recorded(*waits_of, build=build)
    assert links(wait_graph, RankNode(1)) == []
    assert links(wait_graph, RankNode(9)) == [("collective", {RankNode(2)}, "gather #7")]


# Engines.


GENERATES = frames("select /usr/lib/python3.11/selectors.py:5", "generate /home/me/t.py:5")


def engines(*parts: tuple[int, Role, int | None, int]) -> EvidenceBuilder:
    """Rank 1 generates; parts of engines by pid, role, rank and parent."""
    build = EvidenceBuilder(ranks=3)
    build.elsewhere(1, GENERATES)
    for pid, role, rank, parent in parts:
        process = build.child(rank or 0, role, pid=pid, parent=parent)
        process.member = replace(process.member, rank=rank)
    return build


def ends_of_engine(job: EvidenceBuilder | Evidence) -> list[set[Node]]:
    """The engines that rank 1 waits for."""
    evidence = job if isinstance(job, Evidence) else job.build()
    wait_graph = waits.build(view.build(evidence))
    return [set(link.targets) for link in wait_graph.out(RankNode(1)) if link.kind == "engine"]


FRONT, CORE, OTHER = 400, 401, 410


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ((), []),
        (((FRONT, "server", None, 1),), [{ProcessNode(FRONT)}]),
        # Its core has a front of its own to ask.
        (((FRONT, "server", None, 1), (CORE, "engine", None, FRONT)), [{ProcessNode(FRONT)}]),
        # That of its own rank comes before those of others.
        (((FRONT, "server", 1, 1), (OTHER, "server", 2, 1)), [{ProcessNode(FRONT)}]),
        (((FRONT, "server", None, 1), (OTHER, "server", 2, 1)), [{ProcessNode(FRONT)}]),
        (((OTHER, "server", 2, 1),), [{ProcessNode(OTHER)}]),
    ],
)
def test_which_engine_a_rank_waits_for(
    parts: tuple[tuple[int, Role, int | None, int], ...], expected: list[set[Node]]
) -> None:
    assert ends_of_engine(engines(*parts)) == expected


@pytest.mark.parametrize(
    ("role", "front", "core", "linked"),
    [
        ("server", "still", "still", True),
        ("server", "works", "still", True),  # it wakes for every message of its core's
        ("engine", "still", "still", True),
        ("engine", "polls", "still", True),
        ("engine", "works", "still", False),
        ("engine", "works", "stopped", True),
    ],
)
def test_a_front_depends_on_its_core_while_it_rests(
    role: Role, front: str, core: str, linked: bool
) -> None:
    build = engines((FRONT, role, None, 1), (CORE, "engine-worker", None, FRONT))
    helper = build.child(0, "helper", pid=500, parent=FRONT)
    helper.member = replace(helper.member, rank=None)
    process = build.processes[FRONT]
    if front == "works":
        process.works(REWARD, moves=False)
    elif front == "polls":
        process.wakes = 6
    build.processes[CORE].state = "T" if core == "stopped" else "S"
    needed = graph(build).needed(ProcessNode(FRONT))
    assert needed == ({ProcessNode(CORE)} if linked else set())


RECEIVES, GENERATE = "readinto /usr/lib/python3.11/socket.py:5", "generate /me/t.py:6"
ASK = "ask /me/t.py:3"


@pytest.mark.parametrize(
    ("lines", "hold", "asking"),
    [
        ((RECEIVES, GENERATE), None, True),
        (("select /usr/lib/python3.11/selectors.py:5", GENERATE), None, True),
        (("get /usr/lib/python3.11/queue.py:5", GENERATE), None, True),
        ((RECEIVES, "sync_weights /me/t.py:5"), None, True),
        ((RECEIVES, "reward /me/t.py:5"), None, False),
        ((RECEIVES, "score /me/t.py:5", GENERATE), None, True),
        ((RECEIVES, "score /me/t.py:5", "sync_weights /me/t.py:6"), None, False),
        (("sleep /usr/lib/python3.11/time.py:5", GENERATE), None, False),
        ((ASK, GENERATE), None, False),
        ((ASK, GENERATE), "socket-receive", True),
        ((ASK, GENERATE), "futex", True),
        ((ASK, GENERATE), "pipe-write", False),
    ],
)
def test_who_waits_for_a_rollout_engine(lines: tuple[str, ...], hold: Any, asking: bool) -> None:
    build = EvidenceBuilder()
    process = build.elsewhere(1, frames(*lines))
    if hold is not None:
        process.blocks(hold)
    assert asks_engine(view.build(build.build()).by_rank[1]) is asking
