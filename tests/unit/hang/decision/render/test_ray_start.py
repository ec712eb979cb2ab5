"""Jobs of Ray without a rank: pending for a resource, loading, or asking an actor that died."""

from __future__ import annotations

from dataclasses import replace

import pytest

from grpo_doctor.hang.diagnose import diagnose
from grpo_doctor.hang.verdict import Verdict
from grpo_doctor_probes.evidence import Frame, RayFact
from tests.evidence import FIRST_NS, EvidenceBuilder, frames

RAY = "/usr/lib/python3.11/site-packages/ray/_private"
ASKS = frames(
    f"get_objects {RAY}/worker.py:900", f"get {RAY}/worker.py:2800", "main /home/me/train.py:9"
)
LOADS = frames("load_model /home/me/engine.py:7", f"main_loop {RAY}/worker.py:1000")
HAS = RayFact("has", wants={"CPU": 4.0})
GROUP = RayFact("pending", "placement group pool", "INFEASIBLE", {"CPU": 1.0, "GPU": 1.0}, 4)
TASK = RayFact("pending", "task or actor", "", {"CPU": 2.0})


def _verdict(
    *facts: RayFact, age_s: float = 20.0, title: str = "", stack: tuple[Frame, ...] = LOADS
) -> Verdict:
    """A driver that waits for Ray, and an actor of this title if there is one."""
    build = EvidenceBuilder(ranks=1)
    build.lose(0)
    build.missing.clear()
    build.world = 0
    build.child(0, "ray", pid=200).stack = ASKS
    if title:
        build.child(0, "ray", pid=201).stack = stack
    evidence = build.build()
    started = int((FIRST_NS / 1e9 - age_s) * 100)
    members = tuple(
        replace(member, rank=None, started_ticks=started, command=command)
        for member, command in zip(evidence.job.members, ("python train.py", title), strict=False)
    )
    job = replace(evidence.job, members=members, world_size=None, local_ranks=None)
    return diagnose(replace(evidence, job=job, dumps=(), ray=facts)).verdict


def test_what_is_pending_is_named_with_what_is_lacking() -> None:
    outcome = _verdict(HAS, TASK, GROUP)
    assert (outcome.state, outcome.cause) == ("slow", "rank-missing")
    assert "it wants 4 times 1 CPU + 1 GPU, and the cluster has 0 GPU" in outcome.summary
    assert "train.py:9" in outcome.summary


def test_it_is_stuck_once_the_last_process_is_old_and_what_is_not_free_is_no_want() -> None:
    assert _verdict(HAS, GROUP, age_s=130.0).state == "stuck"
    assert "which is not free on any node now" in _verdict(HAS, TASK).summary


@pytest.mark.parametrize(("age_s", "state"), [(20.0, "slow"), (70.0, "stuck")])
def test_an_actor_that_died_while_the_driver_waits(age_s: float, state: str) -> None:
    died = RayFact("died", "actor RolloutActor", "WORKER_DIED", pid=7, node="b", age_s=age_s)
    outcome = _verdict(HAS, died)
    assert (outcome.state, outcome.cause) == (state, "rollout-engine-dead")
    assert "actor RolloutActor (pid 7, b) died" in outcome.summary


@pytest.mark.parametrize(
    ("name", "reason", "cause"),
    [
        ("actor RewardWorker", "WORKER_DIED", "reward-blocked"),
        ("actor vLLMHttpServer", "NODE_DIED", "rollout-engine-dead"),
        ("actor WorkerDict", "WORKER_DIED", "rank-dead"),
        ("actor WorkerDict", "OUT_OF_MEMORY", "oom-killed"),
    ],
)
def test_the_class_is_by_name_and_reason(name: str, reason: str, cause: str) -> None:
    assert _verdict(RayFact("died", name, reason, age_s=5.0)).cause == cause


@pytest.mark.parametrize(("age_s", "state"), [(300.0, "slow"), (2000.0, "stuck")])
def test_an_engine_that_loads_is_slow_for_half_an_hour(age_s: float, state: str) -> None:
    outcome = _verdict(title="ray::RolloutActor.__init__", age_s=age_s)
    assert (outcome.state, outcome.culprits) == (state, ())
    assert "RolloutActor.__init__ (pid 201)" in outcome.summary
    assert "engine.py:7" in outcome.summary


def test_a_driver_alone_is_slow_and_leads_to_what_ray_reports() -> None:
    outcome = _verdict(age_s=5000.0)  # who it waits for may not be seen
    assert (outcome.state, outcome.cause) == ("slow", "")
    assert any("attach --ray" in line for line in outcome.confirm)
