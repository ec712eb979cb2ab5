"""Several processes that the user names: of one job that the search takes for two, or of two."""

from __future__ import annotations

import pytest

from grpo_doctor_probes.discover import find_jobs
from tests.unit.probes.discover.fakeproc import FakeProc, rank_environment, rank_pids

GLOO = ("pt_gloo_runloop",)


def start(host: FakeProc, first: int, ranks: range, port: int, **more: object) -> None:
    """Ranks that no launcher has started."""
    world = int(str(more.pop("world", len(ranks))))
    space = str(more.pop("space", "net:[1]"))
    command = str(more.pop("command", "python t.py"))
    for number, rank in enumerate(ranks):
        environment = rank_environment(rank, world, port, **more)
        host.add(first + number, 1, command, environment, torch=True, threads=GLOO, space=space)


def test_the_pods_of_one_job_on_one_host(host: FakeProc) -> None:
    for pod in range(2):
        more = {"world": 4, "MASTER_ADDR": "job-master-0", "space": f"net:[{pod}]"}
        start(host, 100 * (pod + 1), range(2 * pod, 2 * pod + 2), 29500, **more)
    assert len(find_jobs((), host.root)) == 2
    assert rank_pids(host, 100, 200) == [[100, 101, 200, 201]]


def test_a_rank_with_another_port_than_the_others(host: FakeProc) -> None:
    start(host, 100, range(1), 29500, world=2)
    start(host, 200, range(1, 2), 29600, world=2)
    assert rank_pids(host, 100, 200) == [[100, 200]]


def test_worlds_of_one_recorded_run(host: FakeProc) -> None:
    """The watchdog of `run` names all ranks that it has started."""
    for first, port in ((100, 41000), (200, 42000)):
        start(host, first, range(2), port, GRPO_DOCTOR_RUN_DIR="/runs/7")
    assert len(find_jobs([100, 101, 200, 201], host.root)) == 1


@pytest.mark.parametrize("pids", [(100, 200), (200, 100)])
def test_actors_of_ray_and_ranks_of_a_launcher_are_two_jobs(
    host: FakeProc, pids: tuple[int, int]
) -> None:
    start(host, 100, range(2), 41000, command="ray::PolicyModelActor.fit", RAY_JOB_ID="01000000")
    start(host, 200, range(2), 29500)
    assert rank_pids(host, *pids) == [[100, 101], [200, 201]]
