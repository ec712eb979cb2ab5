"""Calls of ranks that do not fit together, by their recordings."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from grpo_doctor.hang.causes.calls import all_in_calls, deadlock, mismatched_calls
from grpo_doctor.hang.causes.candidate import Candidate, Sink
from grpo_doctor.hang.diagnose import diagnose
from grpo_doctor.hang.model.matching.model import (
    Blame,
    Cycle,
    Group,
    GroupStatus,
    Shift,
    Side,
    Signature,
    Wait,
)
from grpo_doctor_probes.evidence import Evidence
from tests.evidence import STEPS, TORCH, EvidenceBuilder, collective, frames
from tests.unit.hang.causes.proposed import case_of, with_matching
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
    outcome = verdict(build)
    assert (outcome.state, outcome.culprits) == ("slow", (1, 2, 3)), outcome


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
        evidence, dumps=tuple(replace(dump, data=_of_nccl(dump.data)) for dump in evidence.dumps)
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
    outcome = diagnose(in_a_pipeline(build, (1, 2, 3))).verdict
    assert (outcome.state, outcome.culprits) == ("slow", (0,)), outcome
    assert outcome.cause != "p2p-unmatched"


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
    outcome = verdict(build)
    assert (outcome.state, outcome.cause, outcome.culprits) == ("stuck", "collective-skipped", (6,))


# What is said of ranks that the recordings blame.

WORLD = Group("0", "0", "default_pg", "gloo", (0, 1, 2, 3))
REDUCE, SEND = Signature("all_reduce", "[64]", "Float"), Signature("broadcast")


def reason_of(
    reason: Any, *ranks: int, sides: tuple[tuple[Signature, tuple[int, ...]], ...]
) -> str:
    """Of these ranks, which are all in a collective; rank 9 is on another host."""
    status = GroupStatus(WORLD, "mismatch", sides=tuple(Side(*side) for side in sides))
    blames = tuple(Blame(rank, "shown", reason, "it did", "0") for rank in ranks)
    case = with_matching(case_of(EvidenceBuilder()), blame=blames, statuses=(status,))
    (label,) = mismatched_calls(case)
    assert label.culprits == ranks
    return label.reason


HERE = " at train.py:70, update"


@pytest.mark.parametrize(
    ("reason", "ranks", "sides", "text"),
    [
        (
            "other-op",
            (2,),
            ((REDUCE, (0, 1, 3)), (SEND, (2,))),
            f"calls broadcast{HERE} where the others call all_reduce of [64] Float",
        ),
        (
            "other-op",
            (9,),
            ((REDUCE, (0, 1, 3)), (SEND, (9,))),
            "calls broadcast where the others call all_reduce of [64] Float",
        ),
        ("extra", (2,), (), f"calls another operation{HERE} where the others call another operat"),
        ("extra", (2,), ((SEND, (0, 2)),), f"calls broadcast{HERE} where the others call another"),
        (
            "other-op",
            (0, 2),
            ((REDUCE, (0, 1)), (SEND, (2, 3))),
            (
                f"disagrees about the call{HERE}: rank 0 calls all_reduce of [64] Float, "
                "rank 2 calls broadcast"
            ),
        ),
        (
            "other-op",
            (2, 3),
            ((REDUCE, (0, 1)), (SEND, (2, 3))),
            f"calls broadcast{HERE} where the others call all_reduce of [64] Float",
        ),
        (
            "skipped",
            (2,),
            ((REDUCE, (0, 1, 3)), (SEND, (2,))),
            (
                f"calls broadcast{HERE} where the others call all_reduce of [64] Float: it skipped "
                "that one, or calls the two in another order"
            ),
        ),
        (
            "skipped",
            (2,),
            ((REDUCE, (0, 1, 3)),),
            f"skipped a collective that the others call, and is now{HERE}",
        ),
        ("skipped", (9,), ((REDUCE, (0, 1, 3)),), "skipped a collective that the others call"),
        (
            "skipped",
            (2,),
            ((REDUCE, (0, 1)), (REDUCE, (2, 3))),
            f"skipped a collective that the others call, and is now{HERE}",
        ),
        ("skipped", (2,), ((SEND, (2,)),), "skipped a collective that the others call, and is now"),
        ("not-sent", (2,), ((REDUCE, (0, 1, 3)),), "has no partner for its send or receive"),
    ],
)
def test_what_blamed_ranks_call_is_told_beside_what_the_others_call(
    reason: str,
    ranks: tuple[int, ...],
    sides: tuple[tuple[Signature, tuple[int, ...]], ...],
    text: str,
) -> None:
    assert reason_of(reason, *ranks, sides=sides).startswith(text)


@pytest.mark.parametrize(
    ("lost", "suspect", "blamed"),
    [(None, None, True), (2, None, False), (None, 2, False), (None, 1, True)],
)
def test_a_partner_that_may_still_come_is_not_blamed(
    lost: int | None, suspect: int | None, blamed: bool
) -> None:
    build = EvidenceBuilder()
    if lost is not None:
        build.lose(lost)
        build.local_ranks = 3  # it may be on another host
    if suspect is not None:
        build.elsewhere(suspect, REWARD)
    case = with_matching(
        case_of(build), blame=(Blame(2, "awaited", "not-sent", "did not send", "0"),)
    )
    assert [label.cause for label in mismatched_calls(case)] == ["p2p-unmatched"] * blamed


@pytest.mark.parametrize(
    ("waits_on", "group", "shift_of", "blamed"),
    [
        (1, "0", None, False),  # the others are late
        (3, "0", None, True),
        (1, "7", None, True),  # in another group
        (1, "0", 0, True),
        (1, "0", 3, False),
    ],
)
def test_a_call_too_many_may_be_one_that_the_others_still_come_to(
    waits_on: int, group: str, shift_of: int | None, blamed: bool
) -> None:
    build = EvidenceBuilder()
    build.elsewhere(1, REWARD)
    shifts = () if shift_of is None else (Shift("extra", "0", shift_of, 9, 1, "broadcast"),)
    case = with_matching(
        case_of(build),
        blame=(Blame(0, "shown", "extra", "one too many", "0"),),
        waits=(Wait(0, group, 40, "broadcast", (waits_on,), "missing"),),
        shifts=shifts,
    )
    assert [label.cause for label in mismatched_calls(case)] == ["collective-mismatch"] * blamed


def test_of_those_that_are_not_here_no_stack_is_shown() -> None:
    view = case_of(EvidenceBuilder()).view
    mistake = Candidate("p2p-unmatched", "", (), Sink.ORDER, culprits=(1, 9))
    candidate = deadlock(view, mistake)
    assert [item.rank for item in candidate.evidence] == [1]
    assert (candidate.liveness, candidate.still_s) == ("never-wakes", 10.0)
    assert deadlock(view, replace(mistake, culprits=(9,))).still_s is None


# Who called others than the rest.


def called(*calls: str) -> EvidenceBuilder:
    """After the last collective of all: `"1:all_reduce 2:broadcast"`, a rank each."""
    build = EvidenceBuilder(ranks=len(calls))
    for rank, text in enumerate(calls):
        build.calls(rank, "barrier", done=True)
        for group, _, operation in (call.partition(":") for call in text.split()):
            build.calls(rank, operation, group=group, number=1, done=True)
    return build


@pytest.mark.parametrize(
    ("calls", "odd"),
    [
        (("1:all_reduce", "2:all_reduce", "3:broadcast"), (2,)),
        (("1:broadcast", "2:broadcast", "3:all_reduce"), (2,)),
        (("1:all_reduce", "2:broadcast"), ()),  # of two either may be right
        (("1:all_reduce", "2:all_reduce", "3:broadcast", "4:broadcast"), ()),
        (("1:all_reduce",) * 3 + ("2:broadcast",) * 2, (3, 4)),
        (("1:all_reduce 2:gather",) * 2 + ("3:all_reduce",), ()),  # it is merely behind
        (("1:all_reduce 2:gather",) * 2 + ("3:broadcast",), (2,)),
        (("", "", ""), ()),
    ],
)
def test_the_few_that_called_others_since_the_last_collective_of_all(
    calls: tuple[str, ...], odd: tuple[int, ...]
) -> None:
    case = with_matching(case_of(called(*calls)))
    labels = list(mismatched_calls(case))
    assert [label.culprits for label in labels] == ([odd] if odd else [])
    if odd:
        usual = " > ".join(call.partition(":")[2] for call in calls[0].split())
        assert labels[0].reason == f"did not call {usual} as the others did"


def test_nobody_called_others_where_a_rank_is_late_or_a_ring_of_waits_says_more() -> None:
    build = called("1:all_reduce", "2:all_reduce", "3:broadcast")
    ring = Cycle((0, 1), (Wait(0, "1", 1, "all_reduce", (1,), "missing"),), ("1",))
    assert list(mismatched_calls(with_matching(case_of(build), cycles=(ring,)))) == []
    build.elsewhere(1, REWARD)
    assert list(mismatched_calls(with_matching(case_of(build)))) == []


def test_a_rank_alone_is_in_no_call_with_others() -> None:
    assert [all_in_calls(case_of(EvidenceBuilder(ranks=count))) for count in (1, 2)] == [
        False,
        True,
    ]


@pytest.mark.parametrize("how", ["late", "stopped", "elsewhere"])
def test_not_all_are_in_calls_where_one_is(how: str) -> None:
    build = EvidenceBuilder(ranks=3)
    if how == "late":
        build.elsewhere(2, REWARD)
    elif how == "stopped":
        build.rank(2).state = "T"
    else:
        build.lose(2)
        build.local_ranks = 2
    assert not all_in_calls(case_of(build))
