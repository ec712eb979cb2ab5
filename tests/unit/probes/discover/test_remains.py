"""A helper that an ended job has left is no job: beside one it does not count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from grpo_doctor_probes.discover import NoJobError, find_jobs
from tests.unit.probes.discover.fakeproc import (
    FakeProc,
    rank_environment,
    rank_pids,
    start_torchrun,
)

SLEEPS = ["/v/bin/python", "-c", "import time\ntime.sleep(3600)"]
LEFT = "left helpers of its ranks, which may hold GPU memory and ports: "
BY_HAND = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": 28400, "WORLD_SIZE": 2}


def leave(
    host: FakeProc,
    pid: int,
    command: Sequence[str] = tuple(SLEEPS),
    environment: Mapping[str, object] | None = None,
    **more: object,
) -> None:
    """What a reward of rank 1 has started, after the job was killed."""
    variables = environment or rank_environment(1, 2, 28400, TORCHELASTIC_RUN_ID="none")
    host.add(pid, 1, command, variables, **{"group": 99, **more})  # type: ignore[arg-type]


@pytest.mark.parametrize("group", [99, 100], ids=["its rank led its group", "it leads its own"])
def test_beside_a_job_it_does_not_count(host: FakeProc, group: int) -> None:
    leave(host, 100, group=group)
    start_torchrun(host, 200, 2)
    assert rank_pids(host) == [[201, 202]]


@pytest.mark.parametrize("leader", [50, 0], ids=["a shell", "outside of what we see"])
def test_a_rank_of_a_script_that_still_runs_is_not_left(host: FakeProc, leader: int) -> None:
    leave(host, 100, group=leader)
    assert rank_pids(host) == [[100]]


@pytest.mark.parametrize("talk", [False, True])
def test_ranks_that_a_script_which_has_ended_starts_or_that_talk_to_each_other(
    host: FakeProc, talk: bool
) -> None:
    for rank, pid in enumerate((100, 101)):
        leave(host, pid, ["python", f"t{rank * talk}.py"], {**BY_HAND, "RANK": rank})
    if talk:
        host.listens(100, 28400)
        host.connects(101, 100, 28400)
    assert rank_pids(host) == [[100, 101]]


def leave_forked(host: FakeProc, pid: int, **more: object) -> None:
    """What rank 0 has forked, with all that the rank had."""
    facts = {"torch": True, "image": 90, "forked": True, "group": 90, **more}
    leave(host, pid, ["python", "t.py"], rank_environment(0, 2), **facts)


@pytest.mark.parametrize("engine", [False, True])
def test_forks_and_an_engine_of_a_job_that_has_ended(host: FakeProc, engine: bool) -> None:
    leave_forked(host, 101, name="pt_data_worker")
    if engine:
        leave(host, 100, ["VLLM::EngineCore"], rank_environment(0, 2), torch=True)
    for pids in ((), (101,)):
        with pytest.raises(NoJobError, match=LEFT + ("100 .*, " if engine else "") + "101 "):
            find_jobs(pids, host.root)


@pytest.mark.parametrize(
    ("image", "is_left"), [(60, True), (90, False)], ids=["other", "its forker"]
)
def test_loader_workers_below_a_program_in_python(
    host: FakeProc, image: int, is_left: bool
) -> None:
    host.add(60, 50, "python supervise.py", image=image, forked=False)
    environment = rank_environment(0, 2)
    host.add(100, 60, "python t.py", environment, torch=True, image=90, name="pt_data_worker")
    with pytest.raises(NoJobError) as error:
        find_jobs((), host.root)
    assert (LEFT + "100 " in str(error.value)) is is_left
