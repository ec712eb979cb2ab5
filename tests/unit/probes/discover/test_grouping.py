"""What belongs to one job, and what only looks like it."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from grpo_doctor_probes.discover import NoJobError, find_jobs
from grpo_doctor_probes.discover.candidates import Candidate
from grpo_doctor_probes.discover.grouping import Groups, _contradict
from grpo_doctor_probes.discover.ranks import Cast
from tests.unit.probes.discover.fakeproc import (
    FakeProc,
    process,
    rank_environment,
    rank_pids,
    roles,
    start_torchrun,
)

GLOO = ("gloo_tcp_loop",)


def test_two_agents_of_one_job_on_one_host(host: FakeProc) -> None:
    for node in range(2):
        pid = 100 * (node + 1)
        host.add(pid, 50, "python /v/bin/torchrun --nnodes 2 --nproc_per_node 2 t.py")
        for local in range(2):
            environment = rank_environment(2 * node + local, 4)
            environment |= {"LOCAL_RANK": local, "LOCAL_WORLD_SIZE": 2, "GROUP_RANK": node}
            host.add(pid + 1 + local, pid, "python -u t.py", environment, torch=True)
    (job,) = find_jobs((), host.root)
    assert (job.world_size, job.local_ranks, job.ranks_missing) == (4, 4, ())


def test_one_server_for_two_jobs_joins_them_not(host: FakeProc) -> None:
    start_torchrun(host, 100, 1, port=29500)
    start_torchrun(host, 200, 1, port=29600)
    host.add(300, 1, "python /v/bin/trl vllm-serve --model m", torch=True)
    host.add(301, 1, "python reward_server.py")
    for server, port in ((300, 8000), (301, 9000)):
        host.listens(server, port)
        for rank in (101, 201):
            host.connects(rank, server, port)
    first, second = find_jobs((), host.root)
    assert [[m.pid for m in job.ranks()] for job in (first, second)] == [[101], [201]]
    assert all(301 in roles(job)["server"] for job in (first, second))


def test_a_forked_helper_outlives_its_rank(host: FakeProc) -> None:
    host.add(200, 1, "python forks.py", torch=True)
    for rank in range(3):
        parent, threads = (1, ()) if rank == 1 else (200, GLOO)
        host.add(
            201 + rank, parent, "python forks.py", rank_environment(rank, 3),
            torch=True, image=200, group=200, threads=threads,
        )  # fmt: skip
    (job,) = find_jobs((), host.root)
    assert (roles(job)["rank"], roles(job)["helper"]) == ({201: 0, 203: 2}, {202: 1})


def test_a_program_that_a_rank_started_outlives_it(host: FakeProc) -> None:
    host.add(5, 0, "python train.py", rank_environment(0, 2), torch=True, threads=GLOO)
    host.add(9, 0, "python judge.py", rank_environment(1, 2), torch=True)
    (job,) = find_jobs((), host.root)
    assert (roles(job)["rank"], roles(job)["helper"]) == ({5: 0}, {9: 1})


def test_a_restarted_attempt_counts(host: FakeProc) -> None:
    start_torchrun(host, 100, 2, TORCHELASTIC_RESTART_COUNT=0)
    for rank in range(2):
        environment = rank_environment(rank, 2, TORCHELASTIC_RESTART_COUNT=1)
        host.add(110 + rank, 100, "python -u t.py", environment, torch=True)
    assert rank_pids(host) == [[110, 111]]


def test_this_tool_and_what_started_it_are_not_the_job(host: FakeProc) -> None:
    host.add(60, 50, "python -m pytest", torch=True, threads=GLOO)
    host.add(61, 60, "python /v/bin/grpo-doctor run -- torchrun t.py")
    host.add(62, 61, "python /v/bin/grpo-doctor attach")
    (host.root / "self").symlink_to("62")
    host.add(63, 61, "python /v/bin/torchrun --nproc_per_node 1 t.py")
    host.add(64, 63, "python t.py", rank_environment(0, 1), torch=True)
    (job,) = find_jobs((), host.root)
    assert {m.pid for m in job.members} == {63, 64}


def test_a_huge_world_is_not_counted_out(host: FakeProc) -> None:
    start_torchrun(host, 100, 1, WORLD_SIZE=10**9)
    (job,) = find_jobs((), host.root)
    assert len(job.ranks_missing) <= 1


def test_the_parent_of_a_job_stands_for_it(host: FakeProc) -> None:
    host.add(90, 50, "bash run.sh", name="bash", program="/bin/bash")
    host.add(100, 90, "python /v/bin/torchrun --nproc_per_node 1 t.py")
    host.add(101, 100, "python -u t.py", rank_environment(0, 1), torch=True)
    assert rank_pids(host, 90) == [[101]]
    with pytest.raises(NoJobError, match="it is the parent of all that runs here"):
        find_jobs([1], host.root)


@pytest.mark.parametrize(
    ("more", "joined"),
    [
        ({}, True),
        ({"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}, True),
        ({"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29600"}, False),
        ({"TORCHELASTIC_RUN_ID": "none"}, True),
        ({"TORCHELASTIC_RUN_ID": "job-8"}, False),
        ({"RANK": "0"}, False),
        ({"RAY_JOB_ID": "02000000"}, False),
        ({"RAY_JOB_ID": "ffffffff"}, True),
    ],
)
def test_what_speaks_against_one_job(more: Mapping[str, str], joined: bool) -> None:
    own = {
        "RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500",
        "TORCHELASTIC_RUN_ID": "job-7", "RAY_JOB_ID": "01000000",
    }  # fmt: skip
    said = {10: own, 11: more}
    candidates = {pid: Candidate(process(pid), "unknown", said[pid]) for pid in said}
    ranks = {10: 0, 11: int(more.get("RANK", "1"))}
    groups = Groups({10, 11}, candidates, Cast(ranks, frozenset(), {}))
    groups.join(10, 11, _contradict)
    assert len(groups.all()) == (1 if joined else 2)


def test_nonsense_in_the_environment_is_no_rank(host: FakeProc) -> None:
    for number, rank in enumerate(("-1", "9" * 40, "1\n", "٣", "", "1 ; rm -rf")):
        host.add(100 + number, 50, "python t.py", {"RANK": rank, "WORLD_SIZE": "2"}, torch=True)
    with pytest.raises(NoJobError, match="no training job was found"):
        find_jobs((), host.root)
