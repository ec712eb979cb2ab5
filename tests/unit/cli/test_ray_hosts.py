"""What a Ray cluster reports of itself, told by a stand-in; `make cluster` asks a real one."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

from grpo_doctor.cli.ray_hosts import ray_facts
from grpo_doctor_probes.evidence import RayFact

AMOUNTS = {"GPU": 4.0, "node:10.0.0.1": 1.0, "memory": 9e9, "accelerator_type:H100": 1.0}


def actor(job: str, state: str, cause: str) -> dict[str, Any]:
    return {
        "ActorClassName": "Worker", "Pid": 7, "JobID": job, "State": state, "DeathCause": cause,
        "Address": {"NodeID": "n1"}, "EndTime": (time.time() - 30) * 1e3,
    }  # fmt: skip


def group(state: str, bundles: list[dict[str, float]], name: str = "") -> dict[str, Any]:
    return {
        "state": state, "bundles": dict(enumerate(bundles)), "name": name,
        "placement_group_id": "0123456789abcdef", "stats": {"scheduling_state": "INFEASIBLE"},
    }  # fmt: skip


def cluster(actors: list[dict[str, Any]], groups: list[dict[str, Any]]) -> Any:
    state = SimpleNamespace(
        jobs=lambda: [{"JobID": "over", "IsDead": True}, {"JobID": "now", "IsDead": False}],
        actors=lambda: dict(enumerate(actors)),
    )
    return SimpleNamespace(
        cluster_resources=lambda: AMOUNTS,
        nodes=lambda: [{"NodeID": "n1", "NodeManagerHostname": "far"}],
        _private=SimpleNamespace(state=state),
        util=SimpleNamespace(placement_group_table=lambda: dict(enumerate(groups))),
    )


def test_resources_are_those_that_a_user_asks_for() -> None:
    wants = {"GPU": 4.0, "accelerator_type:H100": 1.0}
    assert ray_facts(cluster([], [])) == (RayFact("has", wants=wants),)


def test_an_actor_that_died_is_told_with_why_unless_its_job_is_over() -> None:
    died = "reason: WORKER_DIED"
    actors = [
        actor("now", "DEAD", died), actor("over", "DEAD", died), actor("now", "ALIVE", died),
        actor("now", "DEAD", "reason: OUT_OF_SCOPE"),
        actor("now", "DEAD", f"{died} by the memory monitor"),
        actor("now", "DEAD", "creation_task_failure_context {}"),
    ]  # fmt: skip
    _, *facts = ray_facts(cluster(actors, []))
    whys = ["WORKER_DIED", "OUT_OF_MEMORY", "its __init__ failed"]
    assert [fact.reason for fact in facts] == whys
    assert {(fact.kind, fact.what, fact.pid, fact.node) for fact in facts} == {
        ("died", "actor Worker", 7, "far")
    }
    assert all(29 < (fact.age_s or 0) < 60 for fact in facts)


def test_groups_that_have_no_place_are_told_with_how_many_bundles_are_alike() -> None:
    two, one = {"GPU": 1.0}, {"GPU": 2.0}
    groups = [
        group("PENDING", [two, two, one], "pool"), group("CREATED", [two]),
        group("RESCHEDULING", [one]),
    ]  # fmt: skip
    _, *facts = ray_facts(cluster([], groups))
    assert facts == [
        RayFact("pending", "placement group pool", "INFEASIBLE", two, 2),
        RayFact("pending", "placement group 0123456789ab", "INFEASIBLE", one, 1),
    ]
