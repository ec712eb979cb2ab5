"""Connections over which nothing comes."""

from __future__ import annotations

import pytest

from grpo_doctor.hang.diagnose import diagnose
from tests.evidence import STEPS, EvidenceBuilder, frames

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
    assert "rank 2 did not get through and the others wait" in verdict.evidence[0].text


def test_ranks_that_got_through_say_nothing_of_a_network_that_sends_nothing_again() -> None:
    build = EvidenceBuilder()
    _some_are_through(build)
    build.rank(1).blocks("socket-receive", "10.0.0.1:4001 -> 10.0.0.2:5001", 102)
    assert diagnose(build.build()).verdict.cause != "network-silent"


def test_a_rank_that_came_to_no_collective_is_not_cut_off_by_what_others_send_again() -> None:
    build = EvidenceBuilder()
    _some_are_through(build)
    build.elsewhere(0, frames("upload /home/me/logs.py:3"))
    build.rank(1).blocks("socket-receive", "10.0.0.1:4001 -> 10.0.0.2:5001", 102, **TROUBLE)
    assert diagnose(build.build()).verdict.cause != "network-silent"
