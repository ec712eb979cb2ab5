"""Members of a job: their roles, versions, and what is noted of them."""

from __future__ import annotations

import pytest

from grpo_doctor_probes.discover import find_jobs
from tests.unit.probes.discover.fakeproc import TORCH, FakeProc, rank_environment


def start(host: FakeProc, ranks: int = 2, world: int = 2) -> None:
    host.add(100, 50, "python /v/bin/torchrun --nproc_per_node 2 t.py")
    for rank in range(ranks):
        host.add(101 + rank, 100, "python t.py", rank_environment(rank, world), torch=True)


@pytest.mark.parametrize(
    ("command", "more", "role"),
    [
        ("python -c code", {"torch": True}, "engine"),
        ("python -c code", {}, "helper"),
        ("node w.js", {"torch": True, "program": "/usr/bin/node"}, "helper"),
    ],
)
def test_what_a_server_starts_is_its_engine_where_it_may_be(
    host: FakeProc, command: str, more: dict[str, object], role: str
) -> None:
    start(host)
    host.add(200, 50, "/usr/bin/python3.11 /opt/venv/bin/trl vllm-serve --model m")
    host.add(201, 200, command, **more)  # type: ignore[arg-type]
    host.add(202, 201, command, **more)  # type: ignore[arg-type]
    host.add(203, 101, command, program="/usr/bin/node", torch=True)
    host.listens(200, 8000)
    host.connects(101, 200, 8000)
    (job,) = find_jobs((), host.root)
    roles = {member.pid: member.role for member in job.members}
    assert roles[200] == "server"
    assert roles[201] == role
    assert roles[202] == ("engine-worker" if role == "engine" else "helper")
    assert roles[203] == "helper"


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


def test_the_version_of_torch_is_that_of_the_ranks(host: FakeProc) -> None:
    start(host)
    host.add(103, 100, "python helper.py")
    host.add(105, 101, "", state="Z")
    folder = host.root / "101" / "root" / TORCH.lstrip("/")
    folder.mkdir(parents=True)
    (folder / "version.py").write_text("__version__ = '2.9.1'\n")
    (job,) = find_jobs((), host.root)
    versions = {member.pid: member.torch for member in job.members}  # of one program: read once
    assert versions == {100: "", 101: "2.9.1", 102: "2.9.1", 103: "", 105: ""}


def test_a_rank_that_has_not_loaded_torch_yet_says_nothing_of_the_others(host: FakeProc) -> None:
    start(host)
    (host.root / "101" / "maps").write_text("")
    folder = host.root / "102" / "root" / TORCH.lstrip("/")
    folder.mkdir(parents=True)
    (folder / "version.py").write_text("__version__ = '2.9.1'\n")
    (job,) = find_jobs((), host.root)
    assert [member.torch for member in job.ranks()] == ["", "2.9.1"]


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


def test_helpers_have_the_rank_that_they_are_of(host: FakeProc) -> None:
    start(host)
    host.add(110, 101, "sh", program="/bin/sh")
    host.add(111, 110, "cat", program="/bin/cat")
    host.add(112, 100, "sh", program="/bin/sh")
    (job,) = find_jobs((), host.root)
    ranks = {member.pid: (member.rank, member.local_rank) for member in job.members}
    assert ranks == {
        100: (None, None), 101: (0, 0), 102: (1, 1), 110: (0, None), 111: (0, None),
        112: (None, None),
    }  # fmt: skip
