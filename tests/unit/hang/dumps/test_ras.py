"""What NCCL's RAS reports of ranks on hosts that were not looked at."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from grpo_doctor.hang.diagnose import diagnose
from grpo_doctor.hang.dumps.ras import RasReport, hear
from grpo_doctor.hang.model.hosts import hosts_of
from grpo_doctor_probes.evidence import Evidence, RasAnswer
from tests.evidence import FIRST_NS, SECOND, EvidenceBuilder
from tests.several_hosts import on_hosts

HERE, THERE = "10.0.0.1", "10.0.0.2"
Lost = Mapping[int, Mapping[str, bool]]
NOBODY: Lost = {}
SILENT, DEAD = {"unresponsive": True}, {"unresponsive": True, "considered_dead": True}


def first_host() -> Evidence:
    """Ranks 0 and 1 of four wait; ranks 2 and 3 are on another host."""
    build = EvidenceBuilder(recorded=False)
    for rank in range(4):
        build.rank(rank).still_s = 70.0
    return on_hosts(build.build(), 2, addresses=(HERE,))[0]


def communicator(
    *launched: int, key: str = "0xa", ranks: Sequence[int] = (), lost: Lost = NOBODY, **status: Any
) -> dict[str, Any]:
    """Ranks 0 and 1 are processes 100 and 101 of one host, ranks 2 and 3 of another."""
    seats: dict[str, list[dict[str, Any]]] = {"ranks": [], "missing_ranks": []}
    for number, count in enumerate(launched):
        rank = ranks[number] if ranks else number
        seat = {"rank": number, "host": HERE if rank < 2 else THERE, "pid": 100 + rank % 2}
        if number in lost:
            seats["missing_ranks"].append({**seat, "status": lost[number]})
        else:
            counts = {"AllReduce": count, "Broadcast": 5}
            seats["ranks"].append({**seat, "status": status, "collective_counts": counts})
    return {"hash": key, "secondary_hash": "0x1", "size": len(launched), **seats}


def answer(at_s: float, *communicators: dict[str, Any]) -> RasAnswer:
    text = json.dumps({"nccl_version": "2.30.7", "communicators": communicators})
    return RasAnswer("localhost:28028", FIRST_NS + int(at_s * SECOND), text)


def heard(*answers: RasAnswer) -> RasReport:
    return hear(first_host().job, answers)


def twice(*communicators: dict[str, Any]) -> RasReport:
    return heard(answer(0, *communicators), answer(1, *communicators))


@pytest.mark.parametrize(
    ("launched", "late"),
    [
        ((10, 10, 10, 10), set()),
        ((10, 10, 9, 10), {2}),
        ((9, 10, 9, 10), {0, 2}),  # of two halves the larger count is what is waited for
        ((10, 10, 10, 11), set()),
    ],
)
def test_who_has_launched_less_than_most_is_late(launched: Sequence[int], late: set[int]) -> None:
    assert twice(communicator(*launched)).late.keys() == late


@pytest.mark.parametrize(
    ("before", "at_s", "after"),
    [
        ((10, 10, 9, 10), 0.4, (10, 10, 9, 10)),  # as good as one answer
        ((10, 10, 9, 10), 1, (10, 10, 10, 10)),
        ((10, 10, 9, 10), 1, (30, 30, 29, 30)),
        ((10, 10, 8, 10), 1, (10, 10, 9, 10)),  # it launches all the time, as a slow one does
    ],
)
def test_who_makes_progress_is_not_late(
    before: Sequence[int], at_s: float, after: Sequence[int]
) -> None:
    assert heard(answer(0, communicator(*before)), answer(at_s, communicator(*after))).late == {}


def test_who_waits_in_another_communicator_is_left_out() -> None:
    """Rank 1 is behind in the world because it waits for rank 3 in their pair."""
    world, pair = communicator(10, 9, 10, 9), communicator(7, 6, key="0xb", ranks=(1, 3))
    assert twice(world, pair).late.keys() == {3}
    ring = (
        communicator(7, 6, key="0xb", ranks=(0, 1)),
        communicator(4, 3, key="0xc", ranks=(1, 0)),
    )
    assert twice(communicator(10, 10, 10, 10), *ring).late == {}


@pytest.mark.parametrize(
    "other",
    [
        communicator(10, 10, 9, 10, finalize_called=True),
        communicator(10, 10, 9, 10, init_state=7),
        communicator(10, 9),  # of another job, or without the one of all ranks
        communicator(10, 10, 9, 10, ranks=(3, 2, 1, 0)),
    ],
)
def test_what_is_left_or_not_of_the_whole_job_shows_nothing(other: dict[str, Any]) -> None:
    assert twice(other).late == {}


@pytest.mark.parametrize(
    ("lost", "at_s", "ranks"),
    [
        ({2: DEAD, 3: SILENT}, 1, {2: True, 3: False}),
        ({2: {"unresponsive": False}}, 1, {}),
    ],
)
def test_ranks_that_nccl_lost(lost: Lost, at_s: float, ranks: dict[int, bool]) -> None:
    group = communicator(10, 10, 9, 10, lost=lost)
    assert heard(answer(0, group), answer(at_s, group)).lost == ranks


@pytest.mark.parametrize("text", ["{}", "[]", '{"communicators": 3}', '{"a":' * 100_000, "x"])
def test_nonsense_is_left_out(text: str) -> None:
    assert heard(RasAnswer("h:1", 1, text), RasAnswer("h:1", SECOND, text)) == ({}, {}, {})


@pytest.mark.parametrize(
    ("lost", "state", "cause", "culprit", "words"),
    [
        (NOBODY, "slow", "unknown", 2, "has not reached the AllReduce"),
        ({3: DEAD}, "stuck", "rank-dead", 3, "is considered dead by NCCL"),
        ({3: SILENT}, "stuck", "network-silent", 3, "does not respond to NCCL"),
    ],
)
def test_a_rank_on_another_host_is_named(
    lost: Lost, state: str, cause: str, culprit: int, words: str
) -> None:
    group = communicator(10, 10, 9, 10, lost=lost)
    evidence = replace(first_host(), ras=(answer(0, group), answer(1, group)))
    verdict = diagnose(evidence).verdict
    assert (verdict.state, verdict.cause, verdict.culprits) == (state, cause, (culprit,))
    assert words in verdict.summary
    assert hosts_of(evidence, (2, 3)) == (THERE,)
    assert any("AllReduce where most of the 4" in i.text for i in verdict.evidence) is not bool(
        lost
    )
