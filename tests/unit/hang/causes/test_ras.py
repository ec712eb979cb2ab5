"""What is made of a rank that NCCL's RAS sees behind the others, which tells not why it is."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest

from grpo_doctor.hang.causes import Candidate
from grpo_doctor.hang.causes.gpu import even_items, findings, reported_by_nccl
from grpo_doctor.hang.diagnose import diagnose
from grpo_doctor.hang.verdict import Verdict
from grpo_doctor_probes.evidence import CallArguments, PythonThread, RasAnswer, Thread
from tests.evidence import FIRST_NS, SECOND, EvidenceBuilder, collective, frames
from tests.several_hosts import on_hosts
from tests.unit.hang.causes.proposed import case_of, proposed

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
    outcome = verdict(build, 10, 10, 9, 10)
    assert (outcome.state, outcome.cause, outcome.culprits) == ("stuck", "collective-skipped", (2,))


def test_a_rank_in_a_long_reward_is_late_and_has_left_nothing_out() -> None:
    build = job(waited_s=70.0)
    build.rank(2).works(REWARD)
    outcome = verdict(build, 10, 10, 9, 10)
    assert (outcome.state, outcome.culprits) == ("slow", (2,))
    assert outcome.cause != "collective-skipped"


def test_a_rank_that_waits_for_its_gpu_may_generate() -> None:
    build = job(waited_s=70.0)
    spinning(build, range(4))
    outcome = verdict(build, 10, 10, 9, 10)
    assert outcome.state == "slow"
    assert outcome.cause != "collective-skipped"


def test_a_stage_of_a_pipeline_that_waits_for_one_at_work_is_not_to_blame() -> None:
    build = job(waited_s=70.0)
    build.rank(2).stack = collective("recv")
    build.arguments = [CallArguments(102, "recv", {"src": "3"})]
    build.rank(3).works(REWARD)
    outcome = verdict(build, 10, 10, 9, 10)
    assert outcome.state == "slow"
    assert outcome.culprits == (3,)


def test_of_a_rank_on_another_host_it_is_not_known_what_it_does() -> None:
    build = job(waited_s=70.0)
    first_host = on_hosts(build.build(), 2)[0]
    outcome = diagnose(replace(first_host, ras=answers(build, 10, 10, 9, 10))).verdict
    assert (outcome.state, outcome.cause, outcome.culprits) == ("slow", "unknown", (2,))
    assert "has not reached the AllReduce" in outcome.summary


def test_who_is_ahead_of_ranks_that_may_be_computing_is_only_early() -> None:
    build = job(waited_s=70.0)
    spinning(build, (0, 1, 2))
    outcome = verdict(build, 10, 10, 10, 11)
    assert outcome.state == "slow"
    assert outcome.cause != "collective-mismatch"


Counts = dict[str, int]
DEAD = {"unresponsive": True, "considered_dead": True}
SILENT = {"unresponsive": True, "considered_dead": False}


def labelled(
    build: EvidenceBuilder,
    *launched: Counts,
    errors: dict[int, int] | None = None,
    lost: dict[int, dict[str, bool]] | None = None,
) -> tuple[Candidate, ...]:
    """What is made of two answers in which each rank has launched so many."""
    seats, missing = [], []
    for rank, counts in enumerate(launched):
        seat = {"rank": rank, "host": "127.0.0.1", "pid": 100 + rank}
        status = {"init_state": 0, "async_error": (errors or {}).get(rank, 0)}
        if lost and rank in lost:
            missing.append({**seat, "status": lost[rank]})
        else:
            seats.append({**seat, "status": status, "collective_counts": counts})
    communicator = {"hash": "0xa", "secondary_hash": "0x1:0x2", "size": len(launched)}
    group = {**communicator, "ranks": seats, "missing_ranks": missing}
    text = json.dumps({"nccl_version": "2.30.7", "communicators": [group]})
    heard = tuple(RasAnswer("localhost:28028", FIRST_NS + n * SECOND, text) for n in (0, 1))
    return proposed(reported_by_nccl, replace(build.build(), ras=heard))


ALIKE: tuple[Counts, ...] = ({"AllReduce": 10, "Broadcast": 5},) * 3
LESS = {"AllReduce": 9, "Broadcast": 5}
MORE = {"AllReduce": 11, "Broadcast": 5}
INSTEAD = {"AllReduce": 9, "Broadcast": 6}


@pytest.mark.parametrize(
    ("counts", "cause", "reason", "liveness"),
    [
        (LESS, "collective-skipped", "skipped a AllReduce that the others call", "never-wakes"),
        (
            INSTEAD,
            "collective-mismatch",
            "called Broadcast where the others call AllReduce",
            "never-wakes",
        ),
        (MORE, "collective-mismatch", "called one more AllReduce than the others", "unseen"),
    ],
)
def test_a_rank_in_a_call_has_left_one_out_or_called_another(
    counts: Counts, cause: str, reason: str, liveness: str
) -> None:
    label = labelled(job(), *ALIKE, counts)[-1]
    assert (label.culprits, label.cause, label.liveness) == ((3,), cause, liveness)
    assert label.reason == reason


def test_who_is_ahead_is_told_only_where_all_others_wait() -> None:
    build = job()
    build.rank(1).works(REWARD)
    assert labelled(build, *ALIKE, MORE) == ()


def test_who_is_behind_is_told_whatever_the_others_do() -> None:
    build = job()
    build.rank(1).works(REWARD)
    build.rank(3).stack = REWARD
    (label,) = labelled(build, *ALIKE, LESS)
    assert label.reason.startswith("does not reach the next AllReduce in reward")
    assert (label.cause, label.liveness) == ("reward-blocked", "unseen")


def test_a_stage_that_waits_for_a_rank_elsewhere_may_only_be_late() -> None:
    """Its partner is on a host that was not looked at."""
    build = job()
    build.lose(2)
    build.local_ranks = 3
    build.rank(3).stack = collective("recv")
    build.arguments = [CallArguments(103, "recv", {"src": "2"})]
    label = next(label for label in labelled(build, *ALIKE, LESS) if label.culprits == (3,))
    assert (label.cause, label.liveness) == ("collective-skipped", "unseen")
    label = next(label for label in labelled(job(), *ALIKE, LESS) if label.culprits == (3,))
    assert label.liveness == "never-wakes"


def test_the_counts_are_evidence() -> None:
    label = labelled(job(), *ALIKE, LESS)[0]
    assert "launched 9 AllReduce where most of the 4 ranks" in label.evidence[0].text


@pytest.mark.parametrize(
    ("error", "cause"), [(1, "gpu-fault"), (2, "network-silent"), (4, "collective-mismatch"),
                         (6, None)],
)  # fmt: skip
def test_an_error_that_nccl_reports_is_one_of_its_rank_unless_its_peer_failed(
    error: int, cause: str | None
) -> None:
    labels = labelled(job(), *ALIKE, LESS, errors={3: error})
    assert [(label.cause, label.culprits) for label in labels] == ([(cause, (3,))] if cause else [])
    assert all(label.reason.startswith("reports to NCCL: ") for label in labels)


@pytest.mark.parametrize(
    ("how", "is_here", "cause", "reason"),
    [
        (DEAD, False, "rank-dead", "is considered dead by NCCL"),
        (DEAD, True, "network-silent", "is considered dead by NCCL"),  # it lives
        (SILENT, False, "network-silent", "does not respond to NCCL"),
        (SILENT, True, "network-silent", "does not respond to NCCL"),
    ],
)
def test_a_rank_that_nccl_does_not_reach(
    how: dict[str, bool], is_here: bool, cause: str, reason: str
) -> None:
    build = job()
    if not is_here:
        build.lose(3)
    (label,) = labelled(build, *ALIKE, LESS, lost={3: how})
    assert (label.cause, label.culprits) == (cause, (3,))
    assert label.reason.startswith(reason)


def test_a_failure_of_nobody_in_the_job_is_left_out() -> None:
    build = job(ranks=3)
    assert labelled(build, *ALIKE, LESS, lost={3: DEAD}) == ()


@pytest.mark.parametrize(
    ("launched", "even", "laggards"),
    [
        ((10, 10, 10, 10), True, set()),
        ((10, 10, 9, 10), False, {2}),
        ((10, 10, 10, 9), False, {3}),
        ((), False, set()),
    ],
)
def test_whom_nccl_points_at(launched: tuple[int, ...], even: bool, laggards: set[int]) -> None:
    build = job()
    heard = answers(build, *launched) if launched else ()
    view = case_of(replace(build.build(), ras=heard)).view
    assert bool(even_items(view)) == even
    found = findings(view)
    ranks = {entry.rank for entry in found.failures} | {entry.rank for entry in found.laggards}
    assert ranks == laggards
