"""Calls that no recorder has: pairs, roots, barriers, and ranks without a recording."""

from __future__ import annotations

import pytest

from grpo_doctor.hang.verdict import Verdict
from grpo_doctor_probes.evidence import CallArguments, Frame
from tests.evidence import STEPS, TORCH, EvidenceBuilder, collective, frames
from tests.verdicts import expect, verdict

MAKES = frames(
    f"_new_process_group_helper {TORCH}/distributed_c10d.py:90",
    f"new_group {TORCH}/distributed_c10d.py:95",
    "prepare /home/me/train.py:5",
)


SENDS = collective(
    "broadcast",
    "_broadcast_to_vllm /x/site-packages/openrlhf/trainer/ray/ppo_actor.py:300",
    "fit /x/site-packages/openrlhf/trainer/ray/ppo_actor.py:90",
)
AFTER_UPDATE = collective("broadcast", "update /home/me/train.py:300", "main /home/me/train.py:9")


def broadcast(**sources: int) -> Verdict:
    """`r2=1`: rank 2 is in a broadcast of rank 1; who is not named has left it for a barrier."""
    meant = {int(name[1:]): root for name, root in sources.items()}
    build = EvidenceBuilder()
    for rank in range(4):
        stays = rank in meant
        build.rank(rank).stack = collective("broadcast" if stays else "barrier")
        build.joins[rank] = []
        build.calls(rank, "broadcast", done=not stays)
        if not stays:
            build.calls(rank, "barrier", number=STEPS + 1)
    build.arguments = [
        CallArguments(100 + rank, "broadcast", {"src": str(root)}) for rank, root in meant.items()
    ]
    return verdict(build)


def test_who_waits_for_a_source_that_has_left_means_another_one_than_the_rest() -> None:
    found = broadcast(r0=0, r2=1)
    assert (found.state, found.cause, found.culprits) == ("stuck", "collective-mismatch", (2,))
    assert "with rank 1 as its source" in found.summary


def test_of_several_sources_the_one_that_fewer_mean_is_wrong() -> None:
    assert broadcast(r0=0, r1=0, r2=2, r3=0).culprits == (2,)


def test_of_two_that_mean_themselves_either_may_be_wrong() -> None:
    found = broadcast(r0=0, r2=2)
    assert (found.cause, found.culprits) == ("collective-mismatch", (0, 2))


def test_ranks_that_mean_the_same_source_do_not_differ() -> None:
    assert broadcast(r0=0, r2=0).cause != "collective-mismatch"


def test_a_receive_that_nobody_sends() -> None:
    build = EvidenceBuilder()
    build.elsewhere(2, collective("recv"))
    build.arguments = [CallArguments(102, "recv", {"src": "3"})]
    expect(build, "p2p-unmatched", 2)


def test_who_does_not_make_a_group_has_left_it_out() -> None:
    build = EvidenceBuilder()
    for rank in (0, 2, 3):
        build.elsewhere(rank, MAKES)
    found = verdict(build)
    assert (found.state, found.cause, found.culprits) == ("stuck", "collective-skipped", (1,))
    assert "train.py:70, update, and did not come to new_group" in found.summary


def test_who_does_not_come_to_a_barrier_that_is_not_recorded() -> None:
    build = EvidenceBuilder()
    for rank in (0, 1, 2):
        build.elsewhere(rank, collective("monitored_barrier"))
    found = verdict(build)
    assert (found.state, found.cause, found.culprits) == ("stuck", "collective-skipped", (3,))


def test_another_operation_without_recordings() -> None:
    build = EvidenceBuilder(recorded=False)
    build.rank(2).stack = collective("broadcast")
    assert verdict(build).culprits == (2,)


def in_two_operations(stack: tuple[Frame, ...], share: float, seconds: float = 8.0) -> Verdict:
    """Rank 0 stands there, the others in a barrier; nothing is recorded."""
    build = EvidenceBuilder(recorded=False)
    build.waited_s = seconds
    for rank in range(4):
        build.rank(rank).stack, build.rank(rank).still_s = collective("barrier"), seconds
    first = build.rank(0)
    first.stack = stack
    if share:
        first.cpu_share, first.wakes, first.still_s = share, 300, 0.005
    return verdict(build)


def test_two_operations_without_a_recorder() -> None:
    found = in_two_operations(AFTER_UPDATE, 0.0)
    assert (found.state, found.cause, found.culprits) == ("stuck", "collective-mismatch", (0,))


@pytest.mark.parametrize("share", [0.0, 0.2])
def test_weights_sent_to_an_engine_are_no_collective_of_the_ranks(share: float) -> None:
    assert in_two_operations(SENDS, share).state == "slow"


def test_who_works_in_its_operation_may_come_to_the_other() -> None:
    build = EvidenceBuilder(ranks=5, recorded=False)
    for rank in (2, 3, 4):
        build.rank(rank).stack = collective("barrier")
    build.rank(0).works(AFTER_UPDATE, moves=False)
    build.rank(1).stack = AFTER_UPDATE
    assert verdict(build).state == "slow"


@pytest.mark.parametrize(("share", "state"), [(0.0, "stuck"), (0.2, "slow")])
def test_a_transfer_that_does_not_move_is_not_waited_for_without_end(
    share: float, state: str
) -> None:
    assert in_two_operations(SENDS, share, seconds=40.0).state == state
