"""Process groups created in different orders."""

from __future__ import annotations

from grpo_doctor.hang.verdict import Verdict
from grpo_doctor_probes.evidence import CallArguments
from tests.evidence import EvidenceBuilder, frames
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
