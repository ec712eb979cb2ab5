"""Members of a job, asked for by what they are."""

from __future__ import annotations

import pytest

from grpo_doctor_probes.evidence import Job, Member, Role


def member(pid: int, role: Role = "rank", rank: int | None = None) -> Member:
    return Member(pid, 1, 1, role, "python", "python t.py", rank=rank)


def test_ranks_come_in_their_order_and_those_of_unknown_number_last() -> None:
    members = (
        member(5, rank=None),
        member(9, rank=0),
        member(4, rank=None),
        member(3, "helper", rank=0),
        member(8, rank=2),
        member(7, rank=1),
    )
    assert [member_.pid for member_ in Job("here", members).ranks()] == [9, 7, 8, 4, 5]


@pytest.mark.parametrize(("pid", "role"), [(3, "launcher"), (4, "helper"), (5, None)])
def test_a_member_by_its_number(pid: int, role: Role | None) -> None:
    process = Job("here", (member(3, "launcher"), member(4, "helper"))).member(pid)
    assert (None if process is None else process.role) == role
