"""A helper that an ended job has left is no job: beside one it does not count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from grpo_doctor_probes.discover import NoJobError, find_jobs
from tests.unit.probes.discover.fakeproc import FakeProc, rank_environment

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


def start_job(host: FakeProc, pid: int = 200) -> None:
    host.add(pid, 50, "python /v/bin/torchrun --nproc_per_node 2 t.py")
    for rank in range(2):
        host.add(pid + 1 + rank, pid, "python t.py", rank_environment(rank, 2), torch=True)


def rank_pids(host: FakeProc, *pids: int) -> list[list[int]]:
    return [[member.pid for member in job.ranks()] for job in find_jobs(pids, host.root)]


@pytest.mark.parametrize("group", [99, 100], ids=["its rank led its group", "it leads its own"])
def test_beside_a_job_it_does_not_count(host: FakeProc, group: int) -> None:
    leave(host, 100, group=group)
    start_job(host)
    assert rank_pids(host) == [[201, 202]]


@pytest.mark.parametrize("leader", [50, 0], ids=["a shell", "outside of what we see"])
def test_a_rank_of_a_script_that_still_runs_is_not_left(host: FakeProc, leader: int) -> None:
    leave(host, 100, group=leader)
    assert rank_pids(host) == [[100]]


def test_alone_it_is_named(host: FakeProc) -> None:
    leave(host, 100)
    with pytest.raises(NoJobError) as error:
        find_jobs((), host.root)
    assert LEFT + "100 (" in str(error.value)
    assert str(error.value).endswith("End them: kill 100; after some seconds, kill -9 100")
    assert rank_pids(host, 100) == [[100]]


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


def leave_forked(host: FakeProc, pid: int, rank: int = 0, **more: object) -> None:
    """What a rank has forked, with all that the rank had."""
    facts = {"torch": True, "image": 90 + rank, "forked": True, "group": 90 + rank, **more}
    leave(host, pid, ["python", "t.py"], rank_environment(rank, 2), **facts)


def test_what_ranks_have_forked_is_left_with_their_torch_and_their_sockets(host: FakeProc) -> None:
    for rank in range(2):
        leave_forked(host, 100 + rank, rank)
    host.listens(100, 29500)
    host.connects(101, 100, 29500)
    with pytest.raises(NoJobError, match=LEFT + r"100 \(python\), 101 \(python\)\. "):
        find_jobs((), host.root)
    with pytest.raises(NoJobError, match=r"process 101 belongs to no running job"):
        find_jobs((101,), host.root)


@pytest.mark.parametrize(
    "rank",
    [
        {"threads": ["pt_gloo_runloop"]},
        {"forked": False},
    ],
    ids=["it has joined a process group", "it was started by an exec"],
)
def test_a_rank_whose_starter_has_ended(host: FakeProc, rank: dict[str, object]) -> None:
    leave_forked(host, 100, **rank)  # type: ignore[arg-type]
    assert rank_pids(host) == [[100]]


def test_loader_workers_of_a_job_that_has_ended(host: FakeProc) -> None:
    leave_forked(host, 100, name="pt_data_worker")
    for pids in ((), (100,)):
        with pytest.raises(NoJobError, match=LEFT + "100 "):
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


def test_an_engine_and_a_fork_are_left_together(host: FakeProc) -> None:
    leave(host, 100, ["VLLM::EngineCore"], rank_environment(0, 2), torch=True)
    leave_forked(host, 101)
    with pytest.raises(NoJobError, match=LEFT + "100 .*, 101 "):
        find_jobs((), host.root)


@pytest.mark.parametrize(
    ("parent", "is_left"),
    [("systemd", True), ("bash", False)],
    ids=["of a user's session", "a shell"],
)
def test_the_init_of_a_session_takes_orphans(host: FakeProc, parent: str, is_left: bool) -> None:
    host.add(60, 1, parent, name=parent, program=f"/bin/{parent}")
    host.add(100, 60, SLEEPS, rank_environment(1, 2, 28400), group=99)
    if not is_left:
        assert rank_pids(host) == [[100]]
        return
    with pytest.raises(NoJobError, match=LEFT):
        find_jobs((), host.root)
