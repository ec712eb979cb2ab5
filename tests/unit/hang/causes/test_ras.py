"""What is made of a rank that NCCL's RAS sees behind the others, which tells not why it is."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from grpo_doctor.hang.diagnose import diagnose
from grpo_doctor.hang.verdict import Verdict
from grpo_doctor_probes.evidence import CallArguments, PythonThread, RasAnswer, Thread
from tests.evidence import FIRST_NS, SECOND, EvidenceBuilder, collective, frames
from tests.several_hosts import on_hosts

REWARD = frames("reward /home/me/train.py:40", "main /home/me/train.py:9")
SYNCHRONIZE = frames(
    "synchronize /x/site-packages/torch/cuda/streams.py:90", "generate /home/me/train.py:40"
)


def answers(build: EvidenceBuilder, *launched: int) -> tuple[RasAnswer, ...]:
    """Two answers, a second apart, after which everybody has launched so many all-reduces."""
    seats = [
        {
            "rank": rank,
            "host": "127.0.0.1",
            "pid": 100 + rank,
            "status": {"init_state": 0, "async_error": 0},
            "collective_counts": {"AllReduce": count},
        }
        for rank, count in enumerate(launched)
    ]
    communicator = {"hash": "0xa", "secondary_hash": "0x1:0x2", "size": len(launched)}
    document = {"nccl_version": "2.30.7", "communicators": [{**communicator, "ranks": seats}]}
    text = json.dumps(document)
    return tuple(RasAnswer("localhost:28028", FIRST_NS + n * SECOND, text) for n in (0, 1))


def verdict(build: EvidenceBuilder, *launched: int) -> Verdict:
    return diagnose(replace(build.build(), ras=answers(build, *launched))).verdict


def job(waited_s: float = 30.0, ranks: int = 4) -> EvidenceBuilder:
    build = EvidenceBuilder(ranks=ranks, recorded=False)
    for rank in range(ranks):
        build.rank(rank).still_s = waited_s
    return build


def spinning(build: EvidenceBuilder, ranks: Sequence[int]) -> None:
    """They wait for their GPUs, as a kernel and a collective look alike from outside."""
    for rank in ranks:
        process = build.rank(rank)
        process.works(SYNCHRONIZE, moves=False)
        watchdog = Thread(900 + rank, "pt_nccl_watchdg", "S", last_ran_ns=1)
        process.threads = [(PythonThread(900 + rank, "", ()), watchdog)]


def test_a_rank_that_waits_elsewhere_in_the_program_has_left_one_out() -> None:
    build = job()
    build.rank(2).stack = collective("all_reduce", "validate /home/me/train.py:90")
    found = verdict(build, 10, 10, 9, 10)
    assert (found.state, found.cause, found.culprits) == ("stuck", "collective-skipped", (2,))


def test_a_rank_in_a_long_reward_is_late_and_has_left_nothing_out() -> None:
    build = job(waited_s=70.0)
    build.rank(2).works(REWARD)
    found = verdict(build, 10, 10, 9, 10)
    assert (found.state, found.culprits) == ("slow", (2,))
    assert found.cause != "collective-skipped"


def test_a_rank_that_waits_for_its_gpu_may_generate() -> None:
    build = job(waited_s=70.0)
    spinning(build, range(4))
    found = verdict(build, 10, 10, 9, 10)
    assert found.state == "slow"
    assert found.cause != "collective-skipped"


def test_a_stage_of_a_pipeline_that_waits_for_one_at_work_is_not_to_blame() -> None:
    build = job(waited_s=70.0)
    build.rank(2).stack = collective("recv")
    build.arguments = [CallArguments(102, "recv", {"src": "3"})]
    build.rank(3).works(REWARD)
    found = verdict(build, 10, 10, 9, 10)
    assert found.state == "slow"
    assert found.culprits == (3,)


def test_of_a_rank_on_another_host_it_is_not_known_what_it_does() -> None:
    whole = job(waited_s=70.0)
    here = on_hosts(whole.build(), 2)[0]
    found = diagnose(replace(here, ras=answers(whole, 10, 10, 9, 10))).verdict
    assert (found.state, found.cause, found.culprits) == ("slow", "unknown", (2,))
    assert "has not come to the AllReduce" in found.summary


def test_who_is_ahead_of_ranks_that_may_be_computing_is_only_early() -> None:
    build = job(waited_s=70.0)
    spinning(build, (0, 1, 2))
    found = verdict(build, 10, 10, 10, 11)
    assert found.state == "slow"
    assert found.cause != "collective-mismatch"
