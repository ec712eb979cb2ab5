"""Calls of ranks that do not fit together, by their recordings."""

from __future__ import annotations

from typing import Any

import pytest

from grpo_doctor.hang.causes.calls import deadlock, mismatched_calls
from grpo_doctor.hang.causes.candidate import Sink
from grpo_doctor.hang.model.matching.model import (
    Blame,
    Group,
    GroupStatus,
    Shift,
    Side,
    Signature,
    Wait,
)
from tests.evidence import EvidenceBuilder
from tests.unit.hang.causes.proposed import case_of, with_matching
from tests.verdicts import REWARD

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
    candidate = deadlock(view, "p2p-unmatched", (1, 9), "", (), Sink.ORDER)
    assert [item.rank for item in candidate.evidence] == [1]
    assert (candidate.liveness, candidate.still_s) == ("never-wakes", 10.0)
    assert deadlock(view, "p2p-unmatched", (9,), "", (), Sink.ORDER).still_s is None


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
    ring = (Wait(0, "1", 1, "all_reduce", (1,), "missing"),)
    assert list(mismatched_calls(with_matching(case_of(build), cycles=(ring,)))) == []
    build.elsewhere(1, REWARD)
    assert list(mismatched_calls(with_matching(case_of(build)))) == []
