"""Connections over which nothing comes."""

from __future__ import annotations

import pytest

from grpo_doctor.hang.diagnose import diagnose
from tests.evidence import EvidenceBuilder

TROUBLE = {"unconfirmed_bytes": 48, "retransmits": 5}


def test_a_rank_whose_network_is_cut_is_the_end_that_all_connections_in_trouble_share() -> None:
    build = EvidenceBuilder()
    build.rank(1).blocks("socket-receive", "10.0.0.1:4001 -> 10.0.0.2:5001", **TROUBLE)
    build.rank(2).blocks("socket-receive", "10.0.0.2:5003 -> 10.0.0.1:4003", **TROUBLE)
    build.rank(3).blocks("socket-receive", "10.0.0.1:4003 -> 10.0.0.2:5003", **TROUBLE)
    verdict = diagnose(build.build()).verdict
    assert (verdict.cause, verdict.culprits) == ("network-silent", (2,))
    assert verdict.summary.startswith("Rank 2 sends and gets no answer")


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
    assert known or "nothing comes through the network to 10.0.0.2" in verdict.summary
