"""Process groups used, or created, in different orders."""

from __future__ import annotations

from grpo_doctor.hang.verdict import Verdict
from grpo_doctor_probes.evidence import CallArguments
from tests.evidence import EvidenceBuilder, collective, frames
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
    found = creating(("2", FIRST), ("2", ALL), ("2", FIRST), ("3", SECOND))
    assert (found.state, found.cause, found.culprits) == ("stuck", "group-order-cycle", (1,))
    assert "group 2 is of ranks [0, 1, 2, 3]" in found.summary
    assert "new_group" in found.fixes[0].text


def test_of_two_lists_the_one_whose_members_have_gone_on_is_wrong() -> None:
    found = creating(("2", ALL), ("2", FIRST), ("3", SECOND), ("3", SECOND))
    assert found.culprits == (0,)


def test_a_group_that_others_create_under_another_name_is_out_of_order() -> None:
    found = creating(("1", FIRST), ("1", FIRST), ("2", FIRST), ("2", SECOND))
    assert (found.cause, found.culprits) == ("group-order-cycle", (2,))


def test_of_two_that_contradict_each_other_either_may_be_wrong() -> None:
    found = creating(("1", "[0, 1]"), ("1", "[1, 0]"))
    assert (found.cause, found.culprits) == ("group-order-cycle", (0, 1))


def test_ranks_that_create_the_same_groups_contradict_nobody() -> None:
    assert creating(("1", FIRST), ("1", FIRST), ("1", FIRST), ("2", SECOND)).cause == "unknown"


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


def test_ranks_that_are_each_alone_in_a_group_use_them_in_different_orders() -> None:
    build = EvidenceBuilder()
    for rank in range(4):
        build.calls(rank, "all_reduce", group=str(2 + rank), number=2)
        for other in range(4):
            if other != rank:
                build.joins[rank].insert(0, _earlier(2 + other))
    found = verdict(build)
    assert (found.state, found.cause) == ("stuck", "group-order-cycle")


def _earlier(group: int) -> dict[str, object]:
    return {"op": "all_reduce", "size": 64, "group": str(group), "number": 1, "done": True}
