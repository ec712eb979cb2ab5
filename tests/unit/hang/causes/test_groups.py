"""Calls of process groups that do not fit together."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from grpo_doctor.hang.diagnose import diagnose
from grpo_doctor.hang.verdict import Verdict
from grpo_doctor_probes.evidence import Evidence, Frame
from tests.evidence import STEPS, TORCH, EvidenceBuilder, collective, frames
from tests.verdicts import REWARD, expect, verdict

RECEIVE = frames(f"recv {TORCH}/distributed_c10d.py:2700", "step /home/me/train.py:70")


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
    assert (found.state, found.culprits) == ("slow", (1, 2, 3)), found


def test_a_call_too_many_counts_whoever_is_still_at_work() -> None:
    """What was called after it agrees with the others' calls, but for that one."""
    build = EvidenceBuilder()
    build.elsewhere(1, REWARD).works(REWARD)
    for rank, first in ((0, STEPS + 1), (1, STEPS), (2, STEPS), (3, STEPS)):
        build.joins[rank] = []
        build.calls(rank, "all_reduce", number=first, done=True)
        if rank != 1:
            build.calls(rank, "all_gather", size=8, number=first + 1)
    build.calls(0, "broadcast", size=1, number=STEPS, done=True)
    build.joins[0].insert(0, build.joins[0].pop())
    expect(build, "collective-mismatch", 0)


def in_a_pipeline(build: EvidenceBuilder, receivers: tuple[int, ...]) -> Evidence:
    """Each of these waits to receive from the rank before it; by NCCL's recorder."""
    for rank in receivers:
        build.rank(rank).stack, build.joins[rank] = RECEIVE, []
        build.calls(rank, f"recv {rank}<-{rank - 1}")
    evidence = build.build()
    return replace(
        evidence, dumps=tuple(replace(one, data=_of_nccl(one.data)) for one in evidence.dumps)
    )


def _of_nccl(data: bytes) -> bytes:
    document: dict[str, Any] = json.loads(data)
    ranks = {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"}
    document["pg_config"] = {"0": ranks}
    for entry in document["entries"]:
        entry["profiling_name"] = entry["profiling_name"].replace("gloo:", "nccl:")
        entry["state"] = "completed" if entry["retired"] else "scheduled"
        if "<-" in entry["profiling_name"]:
            entry |= {"is_p2p": True, "p2p_seq_id": 1, "collective_seq_id": 0}
    return json.dumps(document).encode()


def test_the_first_stage_of_a_pipeline_at_work_has_not_lost_its_partner() -> None:
    build = EvidenceBuilder()
    build.elsewhere(0, REWARD).works(REWARD)
    found = diagnose(in_a_pipeline(build, (1, 2, 3))).verdict
    assert (found.state, found.culprits) == ("slow", (0,)), found
    assert found.cause != "p2p-unmatched"


def test_nor_has_one_of_another_host() -> None:
    build = EvidenceBuilder()
    build.lose(0)
    build.local_ranks = 3
    assert diagnose(in_a_pipeline(build, (1, 2, 3))).verdict.cause != "p2p-unmatched"


SENDS = collective(
    "broadcast",
    "_broadcast_to_vllm /x/site-packages/openrlhf/trainer/ray/ppo_actor.py:300",
    "fit /x/site-packages/openrlhf/trainer/ray/ppo_actor.py:90",
)
AFTER_UPDATE = collective("broadcast", "update /home/me/train.py:300", "main /home/me/train.py:9")


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
