"""What the page draws, of jobs of any size."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from grpo_doctor.hang.decision.render.document import nodes_of, rank_states, stack_groups
from grpo_doctor.hang.diagnose import diagnose
from grpo_doctor.hang.model.nodes import RankNode
from grpo_doctor.hang.verdict import RankState, encoded_document
from grpo_doctor_probes.evidence import Role
from grpo_doctor_reports.hang.graph import make_graph
from grpo_doctor_reports.hang.words import waits_of
from grpo_doctor_reports.schema.attach import read_verdict
from tests.evidence import EvidenceBuilder, FakeProcess, collective, with_look
from tests.unit.hang.causes.proposed import case_of
from tests.verdicts import REWARD

CAMP = 200
LARGEST = 2_000_000  # bytes; one edge for each wait of the two camps alone is 8 MB


def test_two_camps_of_many_ranks_make_a_small_document() -> None:
    build = EvidenceBuilder(ranks=2 * CAMP)
    for rank in range(CAMP):
        build.rank(rank).stack = collective("broadcast")
        build.joins[rank] = []
        build.calls(rank, "broadcast")
    document = encoded_document(diagnose(build.build()))
    assert len(document) < LARGEST
    visit = read_verdict(json.loads(document))
    (there,) = [wait for wait in waits_of(visit.graph) if "rank:0" in wait.sources]
    assert len(there.sources) == len(there.targets) == CAMP
    assert len(make_graph(visit).boxes) <= 4  # the ring of one of each camp, and the rest


def states(build: EvidenceBuilder) -> tuple[RankState, ...]:
    case = case_of(build)
    return rank_states(case.view, case.graph)


def of_nobody(process: FakeProcess) -> None:
    process.member = replace(process.member, rank=None)


def test_ranks_come_first_in_their_order_and_then_the_other_processes() -> None:
    build = EvidenceBuilder(ranks=4)
    build.lose(2)
    build.child(1, "helper", pid=305)
    build.child(1, "helper", pid=304)
    build.child(0, "helper", pid=306)
    of_nobody(build.child(0, "ray", pid=90))
    of_nobody(build.child(0, "rank", pid=120))
    rows = [(row.role, row.rank, row.pid) for row in states(build)]
    assert rows == [
        ("rank", 0, 100),
        ("rank", 1, 101),
        ("rank", 2, None),
        ("rank", 3, 103),
        ("rank", None, 120),
        ("helper", 0, 306),
        ("helper", 1, 304),
        ("helper", 1, 305),
        ("ray", None, 90),
    ]


@pytest.mark.parametrize(("state", "shown"), [("S", False), ("T", True), ("Z", True)])
def test_a_launcher_is_shown_only_if_it_may_not_run(state: str, shown: bool) -> None:
    build = EvidenceBuilder(ranks=1)
    build.child(0, "launcher", pid=50, parent=1).state = state
    assert ("launcher" in [row.role for row in states(build)]) is shown


@pytest.mark.parametrize(
    ("how", "state", "waiting_for"),
    [
        ("waits", "waiting", "rank 0, in all_reduce of [64] Float #40"),
        ("stopped", "stopped", ""),
        ("dead", "dead", ""),
        ("works", "running", ""),
        ("polls", "running", ""),
        ("sleeps", "blocked", ""),
        ("was not seen before", "unknown", ""),
        ("reads a pipe of nobody", "blocked", "pipe read pipe:[7]"),
        ("reads a pipe of a helper", "waiting", "helper (pid 300)"),
        ("reads a pipe of a rank", "waiting", "rank 2, in pipe read pipe:[7]"),
        ("reads a pipe of a stranger", "waiting", "pid 4711"),
        ("reads a file", "waiting", "/data/rows"),
    ],
)
def test_what_a_rank_is_at_and_waits_for(how: str, state: str, waiting_for: str) -> None:
    build = EvidenceBuilder(ranks=3)
    build.elsewhere(0, REWARD)
    rank = build.rank(1) if how == "waits" else build.elsewhere(1, REWARD)
    build.child(1, "helper", pid=300)
    peers = {"helper": 300, "rank": 102, "stranger": 4711}
    if how in ("stopped", "dead"):
        rank.state = "T" if how == "stopped" else "Z"
    elif how == "works":
        rank.works(REWARD)
    elif how == "polls":
        rank.wakes = 6
    elif how == "reads a file":
        rank.blocks("file", "/data/rows")
    elif how.startswith("reads"):
        pids = [pid for name, pid in peers.items() if how.endswith(name)]
        rank.blocks("pipe-read", "pipe:[7]", *pids)
    case = case_of(build)
    if how == "was not seen before":
        case = case_of(with_look(build.build(), 0, 101))
    row = rank_states(case.view, case.graph)[1]
    assert (row.state, row.waiting_for) == (state, waiting_for)


def test_all_ranks_are_drawn_and_what_else_is_in_a_wait() -> None:
    build = EvidenceBuilder(ranks=2)
    build.lose(1)
    rank = build.elsewhere(0, REWARD)
    rank.blocks("pipe-read", "pipe:[7]", 300, 4711)
    build.child(0, "helper", pid=300).blocks("file", "/data/rows")
    build.child(0, "helper", pid=301)
    case = case_of(build)
    drawn = nodes_of(case.view, case.graph, frozenset({RankNode(0)}))
    assert [(node.id, node.label, node.role, node.guilty) for node in drawn] == [
        ("rank:0", "rank 0", "rank", True),
        ("rank:1", "rank 1", "rank", False),
        ("pid:300", "helper (pid 300)", "helper", False),
        ("pid:4711", "pid 4711", "other", False),
        ("file:/data/rows", "/data/rows", "file", False),
    ]


@pytest.mark.parametrize(
    ("role", "of_a_rank", "title"),
    [
        ("helper", True, "rank 0, helper: "),
        ("helper", False, "rank 0, helper: "),
        ("rank", False, "rank 0: "),
    ],
)
def test_a_group_of_equal_stacks_is_named_by_its_ranks_and_the_roles_of_the_rest(
    role: Role, of_a_rank: bool, title: str
) -> None:
    build = EvidenceBuilder(ranks=2)
    build.elsewhere(0, REWARD)
    other = build.child(1, role, pid=300)
    other.stack = REWARD
    if not of_a_rank:
        of_nobody(other)
    smaller, larger = stack_groups(case_of(build).view)
    assert (larger.ranks, larger.pids) == ((0,), (100, 300))
    assert larger.title == f"{title}rewards.py:31 in check"
    assert (smaller.ranks, smaller.pids) == ((1,), (101,))
