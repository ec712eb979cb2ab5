"""Members of a job: their roles, and what is noted of them."""

from __future__ import annotations

import pytest

from grpo_doctor_probes.discover import find_jobs
from tests.unit.probes.discover.fakeproc import FakeProc, rank_environment


@pytest.mark.parametrize(
    ("names", "ranks"),
    [
        (["python"], [103]),
        (["pt_main_thread"], [103]),
        (["trainer"], [103]),  # called like the others
        (["bash"], [103]),  # one rank is absent, and nothing else is left of it
        (["bash", "python"], [104]),
        (["python", "python"], [103]),  # no more than are absent
        (["bash", "bash"], [103]),
    ],
)
def test_a_zombie_of_the_launcher_was_a_rank(
    host: FakeProc, names: list[str], ranks: list[int]
) -> None:
    host.add(100, 50, "python /v/bin/torchrun --nproc_per_node 3 t.py")
    for rank in range(2):
        host.add(
            101 + rank, 100, "python t.py", rank_environment(rank, 3), torch=True, name="trainer"
        )
    for number, name in enumerate(names):
        host.add(103 + number, 100, "", name=name, state="Z")
    (job,) = find_jobs((), host.root)
    assert [member.pid for member in job.ranks()] == [101, 102, *ranks]


@pytest.mark.parametrize(
    ("ranks", "note"),
    [((0, 1), None), ((0, 2), "Ranks [2] are not below the world size of 2."), ((3, 2), "[2, 3]")],
)
def test_ranks_beyond_the_world_are_noted(
    host: FakeProc, ranks: tuple[int, int], note: str | None
) -> None:
    host.add(100, 50, "python /v/bin/torchrun --nproc_per_node 2 t.py")
    for number, rank in enumerate(ranks):
        environment = {**rank_environment(rank, 2), "LOCAL_RANK": number}
        host.add(101 + number, 100, "python t.py", environment, torch=True)
    (job,) = find_jobs((), host.root)
    assert any(note in text for text in job.notes) if note else not job.notes
    assert job.ranks_missing == tuple({0, 1} - set(ranks))
