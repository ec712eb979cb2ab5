"""A helper that an ended job has left is no job: beside one it does not count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from grpo_doctor_probes.discover import NoJobError, find_jobs
from tests.unit.probes.discover.fakeproc import FakeProc, rank_environment

SLEEPS = ["/v/bin/python", "-c", "import time\ntime.sleep(3600)"]
BY_HAND = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": 28400, "WORLD_SIZE": 2}


def leave(
    host: FakeProc,
    pid: int,
    command: Sequence[str] = tuple(SLEEPS),
    environment: Mapping[str, object] | None = None,
    **more: object,
) -> None:
    """What a reward of rank 1 has started, after the job was killed."""
    known = environment or rank_environment(1, 2, 28400, TORCHELASTIC_RUN_ID="none")
    host.add(pid, 1, command, known, **{"group": 99, **more})  # type: ignore[arg-type]


def start_job(host: FakeProc, pid: int = 200) -> None:
    host.add(pid, 50, "python /v/bin/torchrun --nproc_per_node 2 t.py")
    for rank in range(2):
        host.add(pid + 1 + rank, pid, "python t.py", rank_environment(rank, 2), torch=True)


def rank_pids(host: FakeProc, *pids: int) -> list[list[int]]:
    return [[one.pid for one in job.ranks()] for job in find_jobs(pids, host.root)]


@pytest.mark.parametrize("group", [99, 100], ids=["its rank led its group", "it leads its own"])
def test_beside_a_job_it_does_not_count(host: FakeProc, group: int) -> None:
    leave(host, 100, group=group)
    start_job(host)
    assert rank_pids(host) == [[201, 202]]


def test_large_without_torch(host: FakeProc) -> None:
    leave(host, 100, torch=True)
    (host.root / "100" / "maps").write_text("55d0-55d1 r--p 00000000 08:01 11 /usr/bin/python3\n")
    start_job(host)
    assert rank_pids(host) == [[201, 202]]


def test_alone_it_is_named(host: FakeProc) -> None:
    leave(host, 100)
    with pytest.raises(NoJobError) as said:
        find_jobs((), host.root)
    assert "left process 100 (python -c import time time.sleep(3600)): a rank" in str(said.value)
    assert rank_pids(host, 100) == [[100]]


def test_of_each_rank_one(host: FakeProc) -> None:
    for rank in range(6):
        leave(host, 100 + rank, environment=rank_environment(rank, 6))
    with pytest.raises(NoJobError, match=r"left processes 100 .* and 2 more: a rank"):
        find_jobs((), host.root)


def test_what_it_was_told_stays_secret(host: FakeProc) -> None:
    leave(host, 100, ["python", "judge.py", "--api-key", "hunter2"])
    with pytest.raises(NoJobError) as said:
        find_jobs((), host.root)
    assert "hunter2" not in str(said.value)


def test_one_with_torch_may_be_a_rank(host: FakeProc) -> None:
    leave(host, 100, ["python", "t.py"], torch=True)
    assert rank_pids(host) == [[100]]


def test_a_rank_of_a_pod_that_has_yet_to_load_torch(host: FakeProc) -> None:
    host.add(5, 0, "python train.py", {**BY_HAND, "RANK": 1})
    assert rank_pids(host) == [[5]]


@pytest.mark.parametrize("session", ["of its script", "of its own"])
def test_a_rank_that_the_init_of_a_pod_starts(host: FakeProc, session: str) -> None:
    """As `sh -c "python prepare.py; python train.py"` and as dumb-init do."""
    environment = {**BY_HAND, "RANK": 1}
    (host.root / "1" / "environ").write_text("RANK=1\0WORLD_SIZE=2\0")
    group = 1 if session == "of its script" else None
    host.add(7, 1, "python train.py", environment, group=group)
    assert rank_pids(host) == [[7]]


def test_ranks_that_a_script_which_has_ended_starts(host: FakeProc) -> None:
    for rank in range(2):
        leave(host, 100 + rank, ["python", "t.py"], {**BY_HAND, "RANK": rank})
    assert rank_pids(host) == [[100, 101]]


def test_a_rank_that_talks_to_another_one(host: FakeProc) -> None:
    for rank, pid in enumerate((100, 101)):
        leave(host, pid, ["python", f"t{rank}.py"], {**BY_HAND, "RANK": rank})
    host.listens(100, 28400)
    host.connects(101, 100, 28400)
    assert rank_pids(host) == [[100, 101]]


def test_a_rank_below_a_launcher_that_has_yet_to_load_torch(host: FakeProc) -> None:
    host.add(90, 1, "python /v/bin/torchrun --nproc_per_node 1 t.py")
    host.add(100, 90, "python t.py", rank_environment(0, 1))
    assert rank_pids(host) == [[100]]
