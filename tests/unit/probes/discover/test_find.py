"""Which processes make a job, which job a process is of, and several that the user names."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from grpo_doctor_probes.discover import NoJobError, find_jobs
from grpo_doctor_probes.discover.candidates import Candidate
from grpo_doctor_probes.discover.find import recognise_parents
from grpo_doctor_probes.discover.scan import Process
from tests.unit.probes.discover.fakeproc import (
    FakeProc,
    process,
    rank_environment,
    rank_pids,
    start_torchrun,
)

SERVES, TRAINS = "python serve.py", "python -m openrlhf.cli.train_ppo"
ENGINE, RAYLET = process(90, 80, "VLLM::EngineCore"), process(90, 80, "/ray/raylet", name="raylet")


@pytest.mark.parametrize(
    ("command", "facts", "child", "kind"),
    [
        (SERVES, None, ENGINE, "server"),
        (SERVES, None, process(90, 80, "VLLM::Worker_TP0"), None),
        (SERVES, None, process(90, 80, "python w.py"), None),
        (SERVES, {"torch": True}, ENGINE, "server"),
        (SERVES, {"grouped": True}, ENGINE, "unknown"),
        (SERVES, {"kind": "reward"}, ENGINE, "reward"),
        (TRAINS, None, ENGINE, "server"),
        (TRAINS, {"torch": True}, ENGINE, "unknown"),
        ("python -c multiprocessing.resource_tracker", None, ENGINE, None),
        (SERVES, None, RAYLET, "ray"),
        (SERVES, {"grouped": True}, RAYLET, "ray"),
        (SERVES, None, process(90, 80, "/ray/gcs_server", name="gcs_server"), "ray"),
        (SERVES, {"kind": "server"}, RAYLET, "server"),
    ],
)
def test_a_parent_is_known_by_what_it_starts_unless_it_may_be_a_rank(
    command: str, facts: dict[str, Any] | None, child: Process, kind: str | None
) -> None:
    parent = process(80, 50, command, python=True)
    candidates = {}
    if facts is not None:
        candidates[80] = replace(Candidate(parent, "unknown", {}), **facts)
    recognise_parents(candidates, {80: parent, 90: child}, frozenset())
    assert (candidates[80].kind if 80 in candidates else None) == kind


@pytest.mark.parametrize(("above", "kind"), [("vllm serve m", None), ("bash", "server")])
def test_what_a_server_starts_is_not_one_more(above: str, kind: str | None) -> None:
    family = [process(70, 50, above), process(80, 70, SERVES, python=True), ENGINE]
    candidates: dict[int, Candidate] = {}
    recognise_parents(candidates, {relative.pid: relative for relative in family}, frozenset())
    assert (candidates[80].kind if 80 in candidates else None) == kind


def test_a_server_that_nothing_but_its_connections_gives_away_is_of_the_job_that_has_them(
    host: FakeProc,
) -> None:
    start_torchrun(host, 100, 2, port=29500)
    start_torchrun(host, 200, 2, port=29600)
    for server, client, port in ((300, 102, 8000), (310, 201, 9000)):
        host.add(server, 1, "python judge.py")
        host.add(server + 1, server, "python worker.py")
        host.listens(server, port)
        host.connects(client, server, port)
    host.add(320, 1, "python judge.py")
    host.listens(320, 9100)
    jobs = find_jobs((), host.root)
    of_servers = [{m.pid: m.role for m in job.members if m.pid >= 300} for job in jobs]
    assert of_servers == [{300: "server", 301: "helper"}, {310: "server", 311: "helper"}]
    assert rank_pids(host, 300) == [[101, 102]]
    assert rank_pids(host, 310) == [[201, 202]]
    with pytest.raises(NoJobError):
        find_jobs([320], host.root)


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
