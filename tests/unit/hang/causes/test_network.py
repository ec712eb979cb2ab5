"""Connections over which nothing comes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from grpo_doctor.hang.causes import Candidate, Case
from grpo_doctor.hang.causes.connections import silent_network
from grpo_doctor.hang.diagnose import diagnose
from grpo_doctor.hang.model.matching.model import Group, GroupStatus, Kind, Wait
from tests.evidence import STEPS, EvidenceBuilder, frames
from tests.unit.hang.causes.proposed import case_of, with_matching

TROUBLE = {"unconfirmed_bytes": 48, "retransmits": 5}


def test_a_rank_whose_network_is_cut_is_the_end_that_all_connections_in_trouble_share() -> None:
    build = EvidenceBuilder()
    build.rank(1).blocks("socket-receive", "10.0.0.1:4001 -> 10.0.0.2:5001", **TROUBLE)
    build.rank(2).blocks("socket-receive", "10.0.0.2:5003 -> 10.0.0.1:4003", **TROUBLE)
    build.rank(3).blocks("socket-receive", "10.0.0.1:4003 -> 10.0.0.2:5003", **TROUBLE)
    verdict = diagnose(build.build()).verdict
    assert (verdict.cause, verdict.culprits) == ("network-silent", (2,))
    assert verdict.summary.startswith("Rank 2 sends data without any response")


def test_a_host_with_many_ranks_is_not_the_rank_of_it_that_was_seen() -> None:
    build = EvidenceBuilder()
    build.rank(2).blocks("socket-receive", "10.0.0.2:5001 -> 10.0.0.1:4001", **TROUBLE)
    build.rank(2).blocks("socket-receive", "10.0.0.2:5002 -> 10.0.0.1:4002", **TROUBLE)
    build.rank(3).blocks("socket-receive", "10.0.0.1:4001 -> 10.0.0.2:5001", **TROUBLE)
    verdict = diagnose(build.build()).verdict
    assert (verdict.cause, verdict.culprits) == ("network-silent", (2,))


@pytest.mark.parametrize("known", [True, False])
def test_who_has_the_far_ends_is_cut_off_though_it_has_nothing_to_send(known: bool) -> None:
    build = EvidenceBuilder()
    peers = (102,) if known else ()
    build.rank(1).blocks("socket-receive", "10.0.0.1:4001 -> 10.0.0.2:5001", *peers, **TROUBLE)
    build.rank(3).blocks("socket-receive", "10.0.0.1:4003 -> 10.0.0.2:5003", *peers, **TROUBLE)
    verdict = diagnose(build.build()).verdict
    assert (verdict.cause, verdict.culprits) == ("network-silent", (2,) if known else ())
    assert known or "no data gets through the network to 10.0.0.2" in verdict.summary


def _some_are_through(build: EvidenceBuilder) -> None:
    """All came to one collective; rank 2 alone is not through, and the others are in the next."""
    for rank in (0, 1, 3):
        build.calls(rank, "all_reduce", number=STEPS, done=True)
        build.calls(rank, "broadcast", number=STEPS + 1)


def test_ranks_that_got_through_and_wait_in_their_next_operation_do_not_hide_the_cut() -> None:
    build = EvidenceBuilder()
    _some_are_through(build)
    build.rank(1).blocks("socket-receive", "10.0.0.1:4001 -> 10.0.0.2:5001", 102, **TROUBLE)
    build.rank(3).blocks("socket-receive", "10.0.0.1:4003 -> 10.0.0.2:5003", 102, **TROUBLE)
    verdict = diagnose(build.build()).verdict
    assert (verdict.state, verdict.cause, verdict.culprits) == ("stuck", "network-silent", (2,))
    assert "rank 2 did not finish it, and the others wait" in verdict.evidence[0].text


def test_the_root_of_a_broadcast_that_went_on_alone_has_made_no_call_too_many() -> None:
    """A link is cut while the root has sent and the others have not received."""
    build = EvidenceBuilder()
    build.calls(0, "broadcast", number=STEPS, done=True)
    build.calls(0, "all_reduce", number=STEPS + 1)
    for rank in (1, 2, 3):
        build.calls(rank, "broadcast", number=STEPS)
    build.rank(0).blocks("socket-receive", "10.0.0.1:4001 -> 10.0.0.2:5001", 102, **TROUBLE)
    build.rank(3).blocks("socket-receive", "10.0.0.1:4003 -> 10.0.0.2:5003", 102, **TROUBLE)
    verdict = diagnose(build.build()).verdict
    assert (verdict.state, verdict.cause, verdict.culprits) == ("stuck", "network-silent", (2,))
    assert "ranks 1-3 did not finish it, and the others wait" in verdict.evidence[0].text
    assert case_of(build).view.matching.blame == ()


def test_a_rank_that_came_to_no_collective_is_not_cut_off_by_what_others_send_again() -> None:
    build = EvidenceBuilder()
    _some_are_through(build)
    build.elsewhere(0, frames("upload /home/me/logs.py:3"))
    build.rank(1).blocks("socket-receive", "10.0.0.1:4001 -> 10.0.0.2:5001", 102, **TROUBLE)
    assert diagnose(build.build()).verdict.cause != "network-silent"


GROUP = Group("0", "0", "default_pg", "gloo", (0, 1, 2, 3))
FAR = "10.0.0.1:4001 -> 10.0.0.2:5001"


def status(kind: Kind, *missing: int) -> GroupStatus:
    return GroupStatus(GROUP, kind, "all_reduce #40", (0, 1), missing)


def wait(rank: int, *on: int, why: Any = "missing") -> Wait:
    return Wait(rank, "0", 40, "broadcast", on, why)


def labels(case: Case) -> list[Candidate]:
    return list(silent_network(case))


# Whether all came to one collective.


@pytest.mark.parametrize(
    ("kinds", "count"),
    [
        (("all-joined-none-done",), 1),
        (("partial",), 1),
        (("fine", "partial"), 1),
        (("fine", "unknown"), 0),
        (("partial", "missing"), 0),
        (("mismatch", "all-joined-none-done"), 0),
        ((), 0),
    ],
)
def test_a_collective_that_all_came_to_while_nobody_is_late(
    kinds: tuple[Kind, ...], count: int
) -> None:
    case = with_matching(case_of(EvidenceBuilder()), statuses=tuple(status(kind) for kind in kinds))
    assert [label.whole for label in labels(case)] == [
        "all ranks are in all_reduce #40 and no data gets through the network"
    ] * count


@pytest.mark.parametrize(
    ("waits", "statuses", "count"),
    [
        ((wait(2, why="joined"),), (), 1),
        ((wait(2, why="joined"), wait(0, 2), wait(1, 0)), (status("missing", 2),), 1),
        ((wait(2, why="joined"), wait(0, 2)), (status("missing", 2, 0),), 1),
        ((wait(2, why="joined"), wait(0, 2)), (status("missing", 3),), 0),
        ((wait(2, why="joined"), wait(0, 3)), (), 0),  # it waits for another one
        ((wait(2, why="joined"), wait(0)), (), 0),  # nobody knows for whom it waits
        ((wait(2, why="joined"),), (status("mismatch"),), 0),
        ((wait(0, 2),), (), 0),
    ],
)
def test_all_waits_lead_to_ranks_that_did_not_get_through(
    waits: tuple[Wait, ...], statuses: tuple[GroupStatus, ...], count: int
) -> None:
    build = EvidenceBuilder()
    build.rank(2).blocks("socket-receive", FAR, **TROUBLE)
    candidates = labels(with_matching(case_of(build), waits=waits, statuses=statuses))
    assert len(candidates) == count
    for label in candidates:
        assert label.evidence[0].text.startswith("all ranks reached broadcast; rank 2 did not")
        assert label.liveness == "never-wakes"


def test_while_a_rank_is_late_the_network_is_not_to_blame() -> None:
    build = EvidenceBuilder()
    build.elsewhere(3, frames("upload /home/me/logs.py:3"))
    assert labels(with_matching(case_of(build), statuses=(status("partial"),))) == []


# Where it is cut.


def troubled(build: EvidenceBuilder, *rows: tuple[int, str], **more: Any) -> Candidate:
    for rank, target in rows:
        build.rank(rank).blocks("socket-receive", target, **(more or TROUBLE), note="sent 5 times")
    (label,) = labels(with_matching(case_of(build), statuses=(status("partial"),)))
    return label


@pytest.mark.parametrize(
    ("trouble", "is_evidence", "liveness"),
    [
        ({"unconfirmed_bytes": 48}, True, "outside"),
        ({"retransmits": 5}, True, "never-wakes"),
        ({"peer_unread_bytes": 5}, False, "outside"),
    ],
)
def test_connections_count_on_which_something_was_not_confirmed_or_was_sent_again(
    trouble: dict[str, int], is_evidence: bool, liveness: str
) -> None:
    label = troubled(EvidenceBuilder(), (1, FAR), **trouble)
    shown = [(item.rank, item.text) for item in label.evidence if item.source == "fd"]
    assert shown == [(1, f"{FAR}: sent 5 times")] * is_evidence
    assert label.liveness == liveness


def test_a_rank_in_as_much_trouble_as_a_host_is_named_before_it() -> None:
    rows = ((1, FAR), (1, "10.0.0.1:4002 -> 10.0.0.3:5001"), (2, "10.0.0.9:1 -> 10.0.0.2:5003"))
    label = troubled(EvidenceBuilder(), *rows)
    assert (label.culprits, label.whole) == ((1,), "")


def test_connections_of_which_an_end_is_not_known_do_not_count() -> None:
    rows = ((1, FAR), (3, "10.0.0.1:4003 -> 10.0.0.2:5003"))
    unknown = tuple((0, f"connection {number}") for number in range(3))
    label = troubled(EvidenceBuilder(), *rows, *unknown)
    assert label.whole.endswith("no data gets through the network to 10.0.0.2")


def test_connections_of_processes_of_no_rank_do_not_count() -> None:
    build = EvidenceBuilder()
    stranger = build.child(0, "helper", pid=300)
    stranger.member = replace(stranger.member, rank=None)
    for number in range(3):
        stranger.blocks("socket-receive", f"10.0.0.7:{number} -> 10.0.0.8:{number}", **TROUBLE)
    label = troubled(build, (1, FAR), (3, "10.0.0.1:4003 -> 10.0.0.2:5003"))
    assert label.whole.endswith("no data gets through the network to 10.0.0.2")


def on_two_hosts(*rows: tuple[int, str]) -> Case:
    """Ranks 0 and 1 on 10.0.0.1, 2 and 3 on 10.0.0.2, seen together; 10.0.0.3 has none."""
    build = EvidenceBuilder()
    for rank, target in rows:
        build.rank(rank).blocks("socket-receive", target, **TROUBLE)
    evidence = build.build()
    members = tuple(
        replace(member, host="a" if (member.rank or 0) < 2 else "b")
        for member in evidence.job.members
    )
    changed_evidence = replace(evidence, job=replace(evidence.job, members=members))
    return with_matching(case_of(changed_evidence), statuses=(status("partial"),))


def test_between_hosts_that_were_seen_no_rank_is_to_blame_for_their_link() -> None:
    rows = ((1, FAR), (2, "10.0.0.2:5001 -> 10.0.0.1:4001"))
    (label,) = labels(on_two_hosts(*rows))
    assert label.culprits == ()
    assert label.whole.endswith("no data gets through the network between a and b")


def test_every_rank_of_the_host_that_no_other_reaches_is_named() -> None:
    build = EvidenceBuilder(ranks=6)
    for rank, target in (
        (0, "10.0.0.1:1 -> 10.0.0.2:1"),
        (2, "10.0.0.2:1 -> 10.0.0.1:1"),
        (4, "10.0.0.3:1 -> 10.0.0.2:2"),
        (3, "10.0.0.2:2 -> 10.0.0.3:1"),
    ):
        build.rank(rank).blocks("socket-receive", target, **TROUBLE)
    evidence = build.build()
    members = tuple(
        replace(member, host="abc"[(member.rank or 0) // 2]) for member in evidence.job.members
    )
    changed_evidence = replace(evidence, job=replace(evidence.job, members=members))
    (label,) = labels(with_matching(case_of(changed_evidence), statuses=(status("partial"),)))
    assert label.culprits == (2, 3)
    assert label.whole.endswith("no data gets through the network to b")
