"""Process groups used, or created, in different orders."""

from __future__ import annotations

from typing import Any

import pytest

from grpo_doctor.hang.causes import Candidate
from grpo_doctor.hang.causes.calls import group_order
from grpo_doctor.hang.model.matching.model import Blame, Group, GroupStatus, Wait
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


@pytest.mark.parametrize(
    ("calls", "culprits"),
    [
        ((("2", FIRST), ("2", ALL), ("2", FIRST), ("3", SECOND)), (1,)),
        ((("1", FIRST), ("1", FIRST), ("2", FIRST), ("2", SECOND)), (2,)),  # under another name
        ((("1", "[0, 1]"), ("1", "[1, 0]")), (0, 1)),  # either may be wrong
        # Names that are hashes are in no order: 0 stands in the list of the others all the same.
        ((("2a", ALL), ("2a", FIRST), ("3a", SECOND), ("3a", SECOND)), (0, 1)),
        ((("2", ALL), ("2", FIRST), ("3a", SECOND), ("3a", SECOND)), (0, 1)),
    ],
)
def test_who_creates_another_group_than_the_rest_is_named(
    calls: tuple[tuple[str, str], ...], culprits: tuple[int, ...]
) -> None:
    mistake = creating(*calls)
    assert (mistake.state, mistake.cause, mistake.culprits) == (
        "stuck",
        "group-order-cycle",
        culprits,
    )
    first = culprits[0]
    assert f"group {calls[first][0]} has ranks {calls[first][1]}" in mistake.summary
    assert "new_group" in mistake.fixes[0].text


# Rings of waits over several groups.

LOGPROB = collective("all_reduce", "compute_logprobs /home/me/train.py:50", "main t.py:9")
TRAIN = collective("all_reduce", "train_step /home/me/train.py:60", "main t.py:9")


def wait(rank: int, on: int, group: str = "") -> Wait:
    return Wait(rank, group or str(1 + rank), 3, "all_reduce", (on,), "missing")


def ring(*stacks: tuple[Frame, ...], blame: tuple[Blame, ...] = ()) -> list[Candidate]:
    """Ranks 0 and 1 wait for each other; all stand at `stacks`."""
    build = EvidenceBuilder(ranks=len(stacks))
    for rank, stack in enumerate(stacks):
        build.rank(rank).stack = stack
    cycle = wait(0, 1), wait(1, 0)
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
    cycle = wait(0, 1), wait(1, 0)
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
    cycle = wait(9, 0), wait(0, 9)
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
    rings = (waits[:1],) * cycles  # of one group
    case = with_matching(case_of(EvidenceBuilder(ranks=3)), waits=waits, cycles=rings)
    labels = list(group_order(case))
    assert [label.culprits for label in labels] == [(0, 1, 2)] * count
    for label in labels:
        assert [item.text for item in label.evidence[:3]] == [
            f"waits alone in all_reduce of group {group}" for group in groups
        ]
