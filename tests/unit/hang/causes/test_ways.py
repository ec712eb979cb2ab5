"""Ranks that all wait, where no single group shows who is to blame."""

from __future__ import annotations

from grpo_doctor.hang.diagnose import diagnose
from grpo_doctor.hang.verdict import Verdict
from tests.evidence import TORCH, EvidenceBuilder, collective, frames

MAKES = frames(
    f"_new_process_group_helper {TORCH}/distributed_c10d.py:90",
    f"new_group {TORCH}/distributed_c10d.py:95",
    "prepare /home/me/train.py:5",
)


def verdict(build: EvidenceBuilder) -> Verdict:
    return diagnose(build.build()).verdict


def test_who_does_not_make_a_group_has_left_it_out() -> None:
    build = EvidenceBuilder()
    for rank in (0, 2, 3):
        build.elsewhere(rank, MAKES)
    said = verdict(build)
    assert (said.state, said.cause, said.culprits) == ("stuck", "collective-skipped", (1,))
    assert "train.py:70, update, and did not come to new_group" in said.summary


def test_who_does_not_come_to_a_barrier_that_is_not_recorded() -> None:
    build = EvidenceBuilder()
    for rank in (0, 1, 2):
        build.elsewhere(rank, collective("monitored_barrier"))
    said = verdict(build)
    assert (said.state, said.cause, said.culprits) == ("stuck", "collective-skipped", (3,))


def test_the_rank_that_took_another_way_to_the_next_collective_of_all() -> None:
    """Its own group's others wait for it there; the members of a group are not recorded."""
    build = EvidenceBuilder(ranks=8)
    for rank in (0, 1, 2, 3):
        build.calls(rank, "all_to_all", group="2", number=1, done=True)
        build.calls(rank, "all_reduce")
    for rank in (4, 5, 7):
        build.rank(rank).stack = collective("all_to_all")
        build.calls(rank, "all_to_all", group="3", number=1)
    said = verdict(build)
    assert (said.state, said.cause, said.culprits) == ("stuck", "collective-skipped", (6,))


def test_ranks_that_are_each_alone_in_a_group_use_them_in_different_orders() -> None:
    build = EvidenceBuilder()
    for rank in range(4):
        build.calls(rank, "all_reduce", group=str(2 + rank), number=2)
        for other in range(4):
            if other != rank:
                build.joins[rank].insert(0, _earlier(2 + other))
    said = verdict(build)
    assert (said.state, said.cause) == ("stuck", "group-order-cycle")


def _earlier(group: int) -> dict[str, object]:
    return {"op": "all_reduce", "size": 64, "group": str(group), "number": 1, "done": True}
