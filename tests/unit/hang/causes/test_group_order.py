"""Process groups used, or created, in different orders."""

from __future__ import annotations

from typing import Any

import pytest

from grpo_doctor.hang.causes import Candidate
from grpo_doctor.hang.causes.calls import group_order
from grpo_doctor.hang.model.matching.model import Blame, Cycle, Group, GroupStatus, Wait
from grpo_doctor.hang.verdict import Verdict
from grpo_doctor_probes.evidence import CallArguments, Frame
from tests.evidence import EvidenceBuilder, collective, frames
from tests.unit.hang.causes.proposed import case_of, with_matching
from tests.verdicts import verdict

C10D = "/x/torch/distributed/distributed_c10d.py"
FIRST, SECOND, ALL = "[0, 1, 2]", "[1, 2, 3]", "[0, 1, 2, 3]"


def creating(*calls: tuple[str, str]) -> Verdict:
    """Each rank's group, its name and its members; all stand in its creation."""
    build = EvidenceBuilder()
    for rank, (name, members) in enumerate(calls):
        build.rank(rank).stack = frames(
            f"_new_process_group_helper {C10D}:2169",
            f"new_group {C10D}:5863",
            "make_groups /home/me/grpo.py:9",
        )
        build.joins[rank] = []
        values = {"group_name": name, "global_ranks_in_group": members}
        build.arguments.append(CallArguments(100 + rank, "_new_process_group_helper", values))
    return verdict(build)


def test_the_rank_whose_list_differs_from_the_others_is_named() -> None:
    mistake = creating(("2", FIRST), ("2", ALL), ("2", FIRST), ("3", SECOND))
    assert (mistake.state, mistake.cause, mistake.culprits) == ("stuck", "group-order-cycle", (1,))
    assert "group 2 has ranks [0, 1, 2, 3]" in mistake.summary
    assert "new_group" in mistake.fixes[0].text


def test_a_group_that_others_create_under_another_name_is_out_of_order() -> None:
    mistake = creating(("1", FIRST), ("1", FIRST), ("2", FIRST), ("2", SECOND))
    assert (mistake.cause, mistake.culprits) == ("group-order-cycle", (2,))


def test_of_two_that_contradict_each_other_either_may_be_wrong() -> None:
    mistake = creating(("1", "[0, 1]"), ("1", "[1, 0]"))
    assert (mistake.cause, mistake.culprits) == ("group-order-cycle", (0, 1))


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
    outcome = verdict(build)
    assert outcome.culprits == (0,), outcome.summary
    assert outcome.victims == (1, 2, 3)


def test_ranks_that_are_each_alone_in_a_group_use_them_in_different_orders() -> None:
    build = EvidenceBuilder()
    for rank in range(4):
        build.calls(rank, "all_reduce", group=str(2 + rank), number=2)
        for other in range(4):
            if other != rank:
                build.joins[rank].insert(0, _earlier(2 + other))
    outcome = verdict(build)
    assert (outcome.state, outcome.cause) == ("stuck", "group-order-cycle")


def _earlier(group: int) -> dict[str, object]:
    return {"op": "all_reduce", "size": 64, "group": str(group), "number": 1, "done": True}


def test_groups_whose_names_are_no_numbers_are_in_no_order() -> None:
    """Names that are hashes of the members: 0 stands in the list of the others all the same."""
    mistake = creating(("2a", ALL), ("2a", FIRST), ("3a", SECOND), ("3a", SECOND))
    assert mistake.culprits == (0, 1)
    assert creating(("2", ALL), ("2", FIRST), ("3a", SECOND), ("3a", SECOND)).culprits == (0, 1)


# Rings of waits over several groups.

LOGPROB = collective("all_reduce", "compute_logprobs /home/me/train.py:50", "main t.py:9")
TRAIN = collective("all_reduce", "train_step /home/me/train.py:60", "main t.py:9")


def wait(rank: int, on: int, group: str = "") -> Wait:
    return Wait(rank, group or str(1 + rank), 3, "all_reduce", (on,), "missing")


def ring(
    *stacks: tuple[Frame, ...], groups: tuple[str, ...] = ("1", "2"), blame: tuple[Blame, ...] = ()
) -> list[Candidate]:
    """Ranks 0 and 1 wait for each other; all stand at `stacks`."""
    build = EvidenceBuilder(ranks=len(stacks))
    for rank, stack in enumerate(stacks):
        build.rank(rank).stack = stack
    cycle = Cycle((0, 1), (wait(0, 1), wait(1, 0)), groups)
    return list(group_order(with_matching(case_of(build), cycles=(cycle,), blame=blame)))


ORDER = Blame(1, "either", "out-of-order", "took them in another order")
EXTRA = Blame(0, "shown", "extra", "called one too many")
OUTSIDE = Blame(2, "shown", "out-of-order", "is in no ring")


@pytest.mark.parametrize(
    ("blame", "culprits"),
    [
        ((), (0, 1)),
        ((ORDER,), (1,)),
        ((EXTRA,), (0,)),
        ((EXTRA, ORDER), (1,)),  # the order counts before what is shown otherwise
        ((OUTSIDE,), (0, 1)),
    ],
)
def test_who_turned_the_order_of_groups_around(
    blame: tuple[Blame, ...], culprits: tuple[int, ...]
) -> None:
    (label,) = ring(TRAIN, TRAIN, TRAIN, blame=blame)
    assert (label.cause, label.culprits) == ("group-order-cycle", culprits)
    ring_of = "is in a cycle of waits over 2 process groups: all_reduce in group 1 at "
    assert label.reason.startswith(ring_of)


@pytest.mark.parametrize(
    ("stacks", "blame", "ahead"),
    [
        ((TRAIN, LOGPROB, TRAIN), (ORDER,), True),
        ((TRAIN, LOGPROB, TRAIN), (), False),  # two are to blame
        ((TRAIN, TRAIN, TRAIN), (ORDER,), False),
        ((TRAIN, LOGPROB, LOGPROB), (ORDER,), False),
        ((TRAIN, LOGPROB), (ORDER,), False),  # of two either may be ahead
        ((TRAIN, LOGPROB, collective("all_reduce", "go t.py:1")), (ORDER,), False),
        ((TRAIN, collective("all_reduce", "go t.py:1"), TRAIN), (ORDER,), False),
        ((collective("all_reduce", "go t.py:1"),) * 3, (ORDER,), False),
    ],
)
def test_a_rank_in_another_phase_than_all_others_is_ahead_of_them(
    stacks: tuple[tuple[Frame, ...], ...], blame: tuple[Blame, ...], ahead: bool
) -> None:
    (label,) = ring(*stacks, blame=blame)
    assert (label.cause == "collective-skipped") == ahead
    assert label.reason.startswith("skipped a collective and is ahead") == ahead


def test_a_group_has_the_name_that_its_maker_gave_it() -> None:
    cycle = Cycle((0, 1), (wait(0, 1), wait(1, 0)), ("1", "2"))
    gradients = Group("1", "1", "gradients", "nccl", (0, 1))
    case = with_matching(
        case_of(EvidenceBuilder(ranks=2)),
        cycles=(cycle,),
        statuses=(GroupStatus(gradients, "missing"),),
    )
    (label,) = group_order(case)
    assert "all_reduce in nccl group 1 (gradients) at train.py:70, update against" in label.reason
    assert "all_reduce of nccl group 1 (gradients) and needs rank 1" in label.evidence[0].text


def test_of_ranks_on_other_hosts_a_ring_tells_no_line() -> None:
    build = EvidenceBuilder(ranks=2)
    cycle = Cycle((0, 9), (wait(9, 0), wait(0, 9)), ("1", "2"))
    (label,) = group_order(with_matching(case_of(build), cycles=(cycle,)))
    assert label.reason.endswith("process groups: all_reduce in group 1 at train.py:70, update")
    assert [item.rank for item in label.evidence][:2] == [9, 0]


@pytest.mark.parametrize(
    ("groups", "why", "cycles", "count"),
    [
        (("1", "2", "3"), "missing", 0, 1),
        (("1", "2", "2"), "missing", 0, 0),
        (("1", "2"), "missing", 0, 0),  # the third waits for nobody
        (("1", "2", "3"), "queued", 0, 0),
        (("1", "2", "3"), "missing", 1, 0),
    ],
)
def test_ranks_that_wait_alone_each_in_a_group_of_its_own(
    groups: tuple[str, ...], why: Any, cycles: int, count: int
) -> None:
    waits = tuple(
        Wait(rank, group, 3, "all_reduce", ((rank + 1) % 3,), why)
        for rank, group in enumerate(groups)
    )
    rings = (Cycle((0, 1), waits[:2], ("1",)),) * cycles
    case = with_matching(case_of(EvidenceBuilder(ranks=3)), waits=waits, cycles=rings)
    labels = list(group_order(case))
    assert [label.culprits for label in labels] == [(0, 1, 2)] * count
    for label in labels:
        assert [item.text for item in label.evidence[:3]] == [
            f"waits alone in all_reduce of group {group}" for group in groups
        ]


def test_while_one_is_late_nobody_is_alone_in_its_group() -> None:
    build = EvidenceBuilder(ranks=3)
    build.elsewhere(2, frames("score /home/me/rewards.py:1"))
    waits = tuple(wait(rank, (rank + 1) % 3) for rank in range(3))
    assert list(group_order(with_matching(case_of(build), waits=waits))) == []
