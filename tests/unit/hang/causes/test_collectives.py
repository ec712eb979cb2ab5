"""Calls of ranks that do not fit together, by their recordings."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from grpo_doctor.hang.diagnose import diagnose
from grpo_doctor_probes.evidence import Evidence
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


def test_the_rank_that_called_others_on_its_way_to_the_next_collective_of_all() -> None:
    """Its own group's others wait for it there; the members of a group are not recorded."""
    build = EvidenceBuilder(ranks=8)
    for rank in (0, 1, 2, 3):
        build.calls(rank, "all_to_all", group="2", number=1, done=True)
        build.calls(rank, "all_reduce")
    for rank in (4, 5, 7):
        build.rank(rank).stack = collective("all_to_all")
        build.calls(rank, "all_to_all", group="3", number=1)
    found = verdict(build)
    assert (found.state, found.cause, found.culprits) == ("stuck", "collective-skipped", (6,))
