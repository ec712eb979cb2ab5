"""Ranks that no launcher of PyTorch has started: a scheduler, MPI, a shell, a pod, or a hand."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import pytest

from grpo_doctor_probes.discover import NoJobError, find_jobs
from tests.unit.probes.discover.fakeproc import FakeProc, roles

GLOO = ("gloo_tcp_loop",)
ADDRESS = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": 29500}


def by_hand(rank: int, world: int) -> dict[str, object]:
    """What a user exports."""
    return {"RANK": rank, "WORLD_SIZE": world, **ADDRESS}


def mpi(rank: int, world: int) -> dict[str, object]:
    return {
        "OMPI_COMM_WORLD_RANK": rank, "OMPI_COMM_WORLD_SIZE": world,
        "OMPI_COMM_WORLD_LOCAL_RANK": rank, "OMPI_COMM_WORLD_LOCAL_SIZE": world,
    }  # fmt: skip


def slurm(rank: int, tasks: int, local: int | None = None, step: int = 0) -> dict[str, object]:
    return {
        "SLURM_PROCID": rank, "SLURM_NTASKS": tasks, "SLURM_JOB_ID": 4711, "SLURM_STEP_ID": step,
        "SLURM_LOCALID": rank if local is None else local,
    }  # fmt: skip


@pytest.mark.parametrize("group", [109, 0], ids=["its script has ended", "a shell outside"])
def test_a_rank_without_the_leader_of_its_group(host: FakeProc, group: int) -> None:
    host.add(100, 50, "python train.py", by_hand(0, 2), torch=True, threads=GLOO)
    host.add(110, 1, "python train.py", by_hand(1, 2), torch=True, group=group)
    (job,) = find_jobs((), host.root)
    assert roles(job)["rank"] == {100: 0, 110: 1}


@pytest.mark.parametrize("joined", [(), (1,), (0, 1)])
@pytest.mark.parametrize("wrapper", [False, True])
def test_mpirun(host: FakeProc, joined: Sequence[int], wrapper: bool) -> None:
    host.add(90, 50, "mpirun -np 2 python t.py", name="mpirun", program="/usr/bin/mpirun")
    for rank in range(2):
        pid, environment, parent = 100 + 10 * rank, mpi(rank, 2), 90
        if wrapper:
            host.add(pid - 1, 90, "bash go.sh", environment, name="bash", program="/bin/bash")
            parent = pid - 1
        threads = GLOO if rank in joined else ()
        host.add(pid, parent, "python t.py", environment, torch=True, threads=threads)
    (job,) = find_jobs((), host.root)
    assert roles(job)["rank"] == {100: 0, 110: 1}
    assert (job.world_size, job.local_ranks) == (2, 2)
    assert [member.local_rank for member in job.ranks()] == [0, 1]


@pytest.mark.parametrize("joined", [(), (1,), (0, 1)])
def test_srun(host: FakeProc, joined: Sequence[int]) -> None:
    host.add(90, 1, ["slurmstepd: [4711.0]"], name="slurmstepd", program="/usr/sbin/slurmstepd")
    for local in range(2):
        pid, environment = 100 + 10 * local, slurm(2 + local, 4, local)
        threads = GLOO if local in joined else ()
        host.add(pid, 90, "python t.py", environment, torch=True, threads=threads, image=pid)
        host.add(pid + 1, pid, "python t.py", environment, torch=True, image=pid)
    (job,) = find_jobs((), host.root)
    assert roles(job)["rank"] == {100: 2, 110: 3}
    assert (job.world_size, job.ranks_missing) == (4, (0, 1))
    assert [member.local_rank for member in job.ranks()] == [0, 1]


def test_two_steps_of_one_allocation_are_two_jobs(host: FakeProc) -> None:
    for step in range(2):
        for rank in range(2):
            environment = slurm(rank, 2, step=step)
            pid = 100 + 100 * step + rank
            host.add(pid, 50, "python t.py", environment, torch=True, threads=GLOO)
    jobs = find_jobs((), host.root)
    assert [roles(job)["rank"] for job in jobs] == [{100: 0, 101: 1}, {200: 0, 201: 1}]


def test_a_pod_says_its_own_number_to_what_starts_the_launcher(host: FakeProc) -> None:
    pod = {**by_hand(1, 2), "MASTER_ADDR": "job-master-0"}
    host.add(80, 1, "python cli.py train", pod)
    host.add(90, 80, "python /v/bin/torchrun --nnodes 2 --nproc_per_node 2 t.py", pod)
    for local in range(2):
        environment = {**pod, "RANK": 2 + local, "LOCAL_RANK": local, "WORLD_SIZE": 4}
        host.add(100 + local, 90, "python t.py", environment, torch=True)
    (job,) = find_jobs((), host.root)
    assert roles(job)["rank"] == {100: 2, 101: 3}


def test_an_engine_that_a_rank_has_spawned_joins_a_group_of_its_own(host: FakeProc) -> None:
    spawned = ["python", "-c", "from multiprocessing.spawn import spawn_main; spawn_main(3)"]
    host.add(100, 50, "python train.py", by_hand(0, 1), torch=True)
    host.add(101, 100, spawned, by_hand(0, 1), torch=True, threads=GLOO)
    (job,) = find_jobs((), host.root)
    assert roles(job)["rank"] == {100: 0}


@pytest.mark.parametrize(
    "wrapper",
    [
        ["bash", "-c", "python train.py"],
        ["numactl", "--cpunodebind=0", "python", "train.py"],
        ["nsys", "profile", "python", "train.py"],
        ["python", "/v/bin/py-spy", "record", "--", "python", "train.py"],
        ["python", "/opt/conda/bin/conda", "run", "-n", "x", "python", "train.py"],
        ["uv", "run", "train.py"],
        ["python", "wrapper.py"],
        ["python", "/v/bin/grpo-doctor", "run", "--", "python", "train.py"],
    ],
    ids=lambda words: " ".join(words)[:24],
)
def test_each_rank_below_a_program_that_has_its_environment(
    host: FakeProc, wrapper: Sequence[str]
) -> None:
    program = "/usr/bin/python3.11" if wrapper[0] == "python" else f"/usr/bin/{wrapper[0]}"
    for rank in range(2):
        pid, environment = 100 + 10 * rank, by_hand(rank, 2)
        host.add(pid - 1, 50, wrapper, environment, name=wrapper[0], program=program)
        threads = GLOO if rank else ()
        host.add(pid, pid - 1, "python train.py", environment, torch=True, threads=threads)
    (job,) = find_jobs((), host.root)
    assert roles(job)["rank"] == {100: 0, 110: 1}


@pytest.mark.parametrize(("joins", "pids"), [({102}, [100]), (set(), [])])
def test_ranks_of_which_none_is_in_a_group_are_found_by_one_that_joins(
    host: FakeProc, joins: set[int], pids: list[int]
) -> None:
    host.add(100, 50, "python t.py", torch=True)
    for pid in (101, 102):
        host.add(pid, 100, "python t.py", torch=True, image=100)
    with contextlib.nullcontext() if pids else pytest.raises(NoJobError):
        jobs = find_jobs((), host.root, joins.__contains__)
        assert [member.pid for job in jobs for member in job.ranks()] == pids
