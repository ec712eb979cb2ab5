"""Members of a job, asked for by what they are."""

from __future__ import annotations

import pytest

from grpo_doctor_probes.evidence import Job, Member, Role


def member(pid: int, role: Role = "rank", rank: int | None = None) -> Member:
    return Member(pid, 1, 1, role, "python", "python t.py", rank=rank)


def test_ranks_come_in_their_order_and_those_of_unknown_number_last() -> None:
    ranks = [member(pid, rank=rank) for pid, rank in ((5, None), (9, 0), (4, None), (8, 2), (7, 1))]
    job = Job("here", (member(3, "helper", rank=0), *ranks))
    assert [process.pid for process in job.ranks()] == [9, 7, 8, 4, 5]


@pytest.mark.parametrize(("pid", "role"), [(3, "launcher"), (4, "helper"), (5, None)])
def test_a_member_by_its_number(pid: int, role: Role | None) -> None:
    process = Job("here", (member(3, "launcher"), member(4, "helper"))).member(pid)
    assert (None if process is None else process.role) == role
