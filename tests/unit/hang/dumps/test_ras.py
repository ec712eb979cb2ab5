"""Whom two rounds of RAS answers point at."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from grpo_doctor.hang.dumps.ras import Findings, hear, judge_ras
from grpo_doctor_probes.evidence import Job, Member, Placement, RasAnswer

SECOND = 1_000_000_000
HERE, THERE = "10.0.0.1", "10.0.0.2"
Counts = Mapping[str, int]
LOST = {"unresponsive": True, "considered_dead": False}
DEAD = {"unresponsive": True, "considered_dead": True}


def job(ranks: int = 4, local: int | None = None, *, addresses: Sequence[str] = (HERE,)) -> Job:
    members = tuple(
        Member(100 + rank, 1, 0, "rank", "python", "train.py", rank=rank)
        for rank in range(local if local is not None else ranks)
    )
    placements = (Placement("node-1", addresses=tuple(addresses)),) if addresses else ()
    return Job("node-1", members, world_size=ranks, placements=placements)


def process(rank: int, local: int = 4) -> dict[str, Any]:
    host, number = (HERE, rank) if rank < local else (THERE, rank - local)
    return {"host": host, "pid": 100 + number, "cuda_dev": number, "nvml_dev": number}


def communicator(
    counts: Sequence[Counts | None],
    key: str = "0xa",
    ranks: Sequence[int] = (),
    missing: Mapping[int, Mapping[str, bool]] = {},
    errors: Mapping[int, int] = {},
    local: int = 4,
    **status: Any,
) -> dict[str, Any]:
    """`counts` by number within the communicator; `ranks` are those of the job."""
    members = list(ranks) or list(range(len(counts)))
    seats = [
        {
            "rank": number, **process(members[number], local),
            "status": {"init_state": 0, "async_error": errors.get(number, 0), **status},
            "collective_counts": dict(own),
        }
        for number, own in enumerate(counts) if own is not None and number not in missing
    ]  # fmt: skip
    lost = [
        {"rank": number, **process(members[number], local), "status": dict(how)}
        for number, how in missing.items()
    ]
    return {
        "hash": key, "secondary_hash": "0x1:0x2", "size": len(counts),
        "ranks": seats, "missing_ranks": lost,
    }  # fmt: skip


def answer(at_s: float, *communicators: dict[str, Any]) -> RasAnswer:
    document = {"nccl_version": "2.30.7", "communicators": communicators}
    return RasAnswer("localhost:28028", int(at_s * SECOND), json.dumps(document))


def findings_of(about: Job, *answers: RasAnswer) -> Findings:
    return judge_ras(hear(about, answers))


def reduce(*counts: int) -> list[Counts | None]:
    return [{"AllReduce": count, "Broadcast": 5} for count in counts]


def twice(*communicators: dict[str, Any]) -> tuple[RasAnswer, RasAnswer]:
    return answer(10, *communicators), answer(11, *communicators)


def test_a_rank_that_stays_behind_is_found() -> None:
    findings = findings_of(job(), *twice(communicator(reduce(10, 10, 9, 10))))
    (lag,) = findings.laggards
    assert (lag.rank, lag.operation, lag.launched, lag.others) == (2, "AllReduce", 9, 10)
    assert not findings.even


def test_one_look_alone_says_nothing_of_counts() -> None:
    findings = findings_of(job(), answer(10, communicator(reduce(10, 10, 9, 10))))
    assert findings == Findings()


def test_two_looks_at_the_same_moment_are_one() -> None:
    group = communicator(reduce(10, 10, 9, 10))
    assert findings_of(job(), answer(10, group), answer(10.1, group)).laggards == ()


def test_who_catches_up_or_gets_on_is_not_behind() -> None:
    before = answer(10, communicator(reduce(10, 10, 9, 10)))
    assert (
        findings_of(job(), before, answer(11, communicator(reduce(10, 10, 10, 10)))).laggards == ()
    )
    assert (
        findings_of(job(), before, answer(11, communicator(reduce(30, 30, 29, 30)))).laggards == ()
    )
    # It launches all the time, as a slow rank does: the others wait, but not for ever.
    slow = communicator([{"AllReduce": 10}] * 3 + [{"AllReduce": 8}])
    later = communicator([{"AllReduce": 10}] * 3 + [{"AllReduce": 9}])
    assert findings_of(job(), answer(10, slow), answer(11, later)).laggards == ()


def test_equal_counts_blame_nobody() -> None:
    findings = findings_of(job(), *twice(communicator(reduce(10, 10, 10, 10))))
    assert findings == Findings(even=True)


def test_of_two_ranks_the_one_with_less_is_waited_for() -> None:
    (lag,) = findings_of(job(2), *twice(communicator(reduce(9, 10)))).laggards
    assert lag.rank == 0


def test_a_rank_alone_ahead_is_told_as_such() -> None:
    (lag,) = findings_of(job(), *twice(communicator(reduce(11, 10, 10, 10)))).laggards
    assert (lag.rank, lag.ahead, lag.launched, lag.others) == (0, True, 11, 10)


def test_another_operation_instead_is_named() -> None:
    counts: list[Counts | None] = [{"AllReduce": 10, "Broadcast": 5}] * 3
    counts.insert(1, {"AllReduce": 9, "Broadcast": 6})
    findings = findings_of(job(), *twice(communicator(counts)))
    assert {(lag.rank, lag.operation, lag.instead) for lag in findings.laggards} == {
        (1, "AllReduce", "Broadcast")
    }


def test_who_waits_in_another_communicator_is_left_out() -> None:
    """Rank 1 is behind in the world because it waits for rank 3 in their pair."""
    world = communicator(reduce(10, 9, 10, 9))
    pair = communicator(reduce(7, 6), "0xb", ranks=(1, 3))
    findings = findings_of(job(), *twice(world, pair))
    assert {lag.rank for lag in findings.laggards} == {3}


def test_a_ring_of_communicators_blames_nobody() -> None:
    first = communicator(reduce(7, 6), "0xb", ranks=(0, 1))
    second = communicator(reduce(4, 3), "0xc", ranks=(1, 0))
    assert findings_of(job(2), *twice(first, second)).laggards == ()


def test_a_communicator_that_is_left_is_no_evidence() -> None:
    group = communicator(reduce(10, 10, 9, 10), finalize_called=True)
    assert findings_of(job(), *twice(group)).laggards == ()


def test_a_rank_on_another_host_is_known_by_the_world_communicator() -> None:
    world = communicator(reduce(10, 10, 9, 10), local=2)
    half = communicator(reduce(4, 3), "0xb", ranks=(0, 2), local=2)
    findings = findings_of(job(4, local=2), *twice(world, half))
    assert {lag.rank for lag in findings.laggards} == {2}
    assert {lag.process.host for lag in findings.laggards} == {THERE}


def test_of_two_communicators_as_large_as_the_job_joined_hosts_do_not_tell_which_it_is() -> None:
    """An engine may have as many GPUs as the trainer."""
    members = tuple(replace(member, host="node-1") for member in job().members)
    several = replace(job(), members=members)
    trainer = communicator(reduce(10, 10, 9, 10))
    engine = communicator(reduce(7, 7, 7, 7), "0xb", ranks=(10, 11, 12, 13))
    assert [lag.rank for lag in findings_of(several, *twice(trainer)).laggards] == [2]
    assert findings_of(several, *twice(trainer, engine)).laggards == ()


def test_an_answer_of_another_job_is_left_out() -> None:
    stranger = communicator(reduce(10, 9), ranks=(4, 5), local=4)
    findings = findings_of(job(2), *twice(stranger))
    assert findings == Findings()


def test_a_group_in_another_order_is_known_by_its_processes() -> None:
    """It is as large as the job, and its numbers are not the job's."""
    other = communicator(reduce(10, 10, 9, 10), ranks=(3, 2, 1, 0))
    assert {lag.rank for lag in findings_of(job(), *twice(other)).laggards} == {1}


def test_dead_and_silent_ranks() -> None:
    group = communicator(reduce(10, 10, 10, 10), missing={1: DEAD, 2: LOST})
    findings = findings_of(job(), *twice(group))
    assert {(f.rank, f.what) for f in findings.failures} == {(1, "dead"), (2, "unresponsive")}
    assert {f.what for f in findings_of(job(), answer(10, group)).failures} == {"dead"}
    neither = communicator(reduce(1, 1, 1, 1), missing={1: dict.fromkeys(LOST, False)})
    assert findings_of(job(), *twice(neither)).failures == ()


def test_errors_but_not_progress() -> None:
    group = communicator(reduce(1, 1, 1, 1), errors={0: 6, 2: 1, 3: 7})
    findings = findings_of(job(), *twice(group))
    assert {(f.rank, f.error) for f in findings.failures} == {(0, 6), (2, 1)}


def test_nonsense_is_left_out() -> None:
    ranks = '{"communicators": [{"ranks": [{}]}]}'
    for text in ("{}", "[]", ranks, '{"communicators": 3}', '{"a":' * 100_000, "x"):
        assert (
            findings_of(job(), RasAnswer("h:1", 1, text), RasAnswer("h:1", 2 * SECOND, text))
            == Findings()
        )
