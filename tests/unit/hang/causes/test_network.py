"""Connections over which nothing comes."""

from __future__ import annotations

from typing import Any

import pytest

from grpo_doctor.hang.causes import Candidate, Case
from grpo_doctor.hang.causes.connections import silent_network
from grpo_doctor.hang.diagnose import diagnose
from grpo_doctor.hang.model.matching.model import Group, GroupStatus, Kind
from tests.evidence import EvidenceBuilder
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


GROUP = Group("0", "0", "default_pg", "gloo", (0, 1, 2, 3))
FAR = "10.0.0.1:4001 -> 10.0.0.2:5001"


def status(kind: Kind, *missing: int) -> GroupStatus:
    return GroupStatus(GROUP, kind, "all_reduce #40", (0, 1), missing)


def labels(case: Case) -> list[Candidate]:
    return list(silent_network(case))


# Whether all came to one collective.


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
