"""Which processes make a job, and which job a process is of."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from grpo_doctor_probes.discover import NoJobError, find_jobs
from grpo_doctor_probes.discover.candidates import Candidate
from grpo_doctor_probes.discover.find import recognise_parents
from grpo_doctor_probes.discover.scan import Process
from tests.unit.probes.discover.fakeproc import FakeProc, rank_environment, rank_pids


def process(pid: int, parent: int, command: str, name: str = "python") -> Process:
    return Process(
        pid=pid, parent=parent, group=pid, session=pid, state="S", name=name, started_ticks=pid,
        python=True, arguments=tuple(command.split()),
    )  # fmt: skip


SERVES, TRAINS = "python serve.py", "python -m openrlhf.cli.train_ppo"
ENGINE, RAYLET = process(90, 80, "VLLM::EngineCore"), process(90, 80, "/ray/raylet", "raylet")


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
        (SERVES, None, process(90, 80, "/ray/gcs_server", "gcs_server"), "ray"),
        (SERVES, {"kind": "server"}, RAYLET, "server"),
    ],
)
def test_a_parent_is_known_by_what_it_starts_unless_it_may_be_a_rank(
    command: str, facts: dict[str, Any] | None, child: Process, kind: str | None
) -> None:
    parent = process(80, 50, command)
    candidates = {}
    if facts is not None:
        candidates[80] = replace(Candidate(parent, "unknown", {}), **facts)
    recognise_parents(candidates, {80: parent, 90: child}, frozenset())
    assert (candidates[80].kind if 80 in candidates else None) == kind


@pytest.mark.parametrize(("above", "kind"), [("vllm serve m", None), ("bash", "server")])
def test_what_a_server_starts_is_not_one_more(above: str, kind: str | None) -> None:
    family = [process(70, 50, above), process(80, 70, SERVES), ENGINE]
    candidates: dict[int, Candidate] = {}
    recognise_parents(candidates, {relative.pid: relative for relative in family}, frozenset())
    assert (candidates[80].kind if 80 in candidates else None) == kind


def start_ranks(host: FakeProc, first: int, ranks: int, port: int) -> None:
    """Below a launcher at the number before."""
    host.add(first - 1, 50, f"python /v/bin/torchrun --nproc_per_node {ranks} t.py")
    for rank in range(ranks):
        environment = rank_environment(rank, ranks, port)
        host.add(first + rank, first - 1, "python t.py", environment, torch=True)


def test_a_server_that_nothing_but_its_connections_gives_away_is_of_the_job_that_has_them(
    host: FakeProc,
) -> None:
    start_ranks(host, 101, 2, 29500)
    start_ranks(host, 201, 2, 29600)
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
