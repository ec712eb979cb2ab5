"""Ranks that no launcher of PyTorch has started: a scheduler, MPI, a shell, a pod, or a hand."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from grpo_doctor_probes.discover import find_jobs
from tests.unit.probes.discover.fakeproc import FakeProc, rank_pids, roles

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


def test_a_forked_process_that_is_named_is_a_rank_that_has_not_joined_the_others(
    host: FakeProc,
) -> None:
    host.add(100, 50, "python t.py", torch=True)
    for pid in (101, 102, 103):
        threads = GLOO if pid == 102 else ()
        host.add(pid, 100, "python t.py", torch=True, image=100, threads=threads)
    host.add(104, 100, "python -c tracker", image=100)
    assert rank_pids(host) == rank_pids(host, 102) == [[102]]
    (note,) = (note for note in find_jobs((), host.root)[0].notes if "attach" in note)
    assert note == (
        "What started the ranks also started 101 103, in no process group yet: if ranks are"
        " missing, name them (attach 101 103)."
    )
    assert rank_pids(host, 101) == [[101, 102]]
    (job,) = find_jobs((101, 103), host.root)
    assert roles(job)["rank"] == {101: 0, 102: 1, 103: 2}
    assert not any("attach" in note for note in job.notes)


def test_what_is_named_beside_ranks_that_have_numbers_stays_a_helper(host: FakeProc) -> None:
    host.add(100, 50, "python t.py", torch=True)
    host.add(101, 100, "python t.py", by_hand(0, 1), torch=True, image=100, threads=GLOO)
    host.add(102, 100, "python t.py", torch=True, image=100)
    assert rank_pids(host, 102) == [[101]]
