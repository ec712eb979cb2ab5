"""Calls of process groups that do not fit together."""

from __future__ import annotations

from tests.evidence import EvidenceBuilder, collective
from tests.verdicts import REWARD, expect, verdict


def test_another_operation() -> None:
    build = EvidenceBuilder()
    build.rank(2).stack = collective("broadcast")
    build.joins[2] = []
    build.calls(2, "broadcast")
    expect(build, "collective-mismatch", 2)


def test_another_size() -> None:
    build = EvidenceBuilder()
    build.joins[1] = []
    build.calls(1, "all_reduce", size=65)
    expect(build, "collective-mismatch", 1)


def test_another_operation_without_recordings() -> None:
    build = EvidenceBuilder(recorded=False)
    build.rank(2).stack = collective("broadcast")
    assert verdict(build).culprits == (2,)


def test_of_a_ring_of_waits_the_odd_rank_is_named_and_not_one_of_the_others() -> None:
    """Rank 0 alone gathers what nobody gathered before; the others are in the next broadcast."""
    build = EvidenceBuilder()
    for rank in range(4):
        build.joins[rank] = []
        build.calls(rank, "broadcast", group="1", number=1, done=True)
    for rank in (1, 2, 3):
        build.rank(rank).stack = collective("broadcast")
        build.calls(rank, "broadcast", group="1", number=2)
    build.rank(0).stack = collective("all_gather")
    build.calls(0, "all_gather")
    found = verdict(build)
    assert found.culprits == (0,), found.summary
    assert found.victims == (1, 2, 3)


def test_who_comes_first_to_a_collective_is_not_there_by_mistake() -> None:
    """Nobody gathered before; the others are still at work, and may come."""
    build = EvidenceBuilder()
    build.rank(0).stack = collective("all_gather")
    build.joins[0] = []
    build.calls(0, "all_gather")
    for rank in (1, 2, 3):
        build.elsewhere(rank, REWARD).works(REWARD)
    found = verdict(build)
    assert (found.state, found.cause) == ("slow", "reward-busy"), found
    assert 0 not in found.culprits
