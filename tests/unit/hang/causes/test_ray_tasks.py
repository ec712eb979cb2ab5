"""Whom Ray's ranks wait for: an actor with a task, the driver, an answer that nobody gives."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from grpo_doctor.hang.causes import Candidate
from grpo_doctor.hang.causes.helpers import ray_tasks
from grpo_doctor.hang.diagnose import diagnose
from grpo_doctor.hang.model.nodes import ProcessNode
from grpo_doctor_probes.evidence import RayFact, Role
from tests.evidence import FakeProcess, collective
from tests.unit.hang.causes.proposed import only
from tests.unit.hang.model.waiting.test_tasks import DRIVER, GET, ROLLOUT, RayJob, in_method

NO_PHASE = in_method("run /home/me/train.py:72")


def title(process: FakeProcess, command: str) -> None:
    process.member = replace(process.member, command=command)


def at_work(command: str = "ray::RolloutActor.generate", **more: Any) -> Candidate:
    """The label of a job where this actor alone has a task; it sleeps in it."""
    job = RayJob()
    title(job.rollout, command)
    for name, value in more.items():
        setattr(job.rollout, name, value)
    return only(ray_tasks, job.build)


@pytest.mark.parametrize(
    ("command", "stack", "phase", "cause"),
    [
        ("ray::RolloutActor.generate", NO_PHASE, "rollout", "rollout-engine-stalled"),
        ("ray::Sampler.run", NO_PHASE, "rollout", "rollout-engine-stalled"),
        ("ray::TextGenerator.run", NO_PHASE, "rollout", "rollout-engine-stalled"),
        ("ray::RewardLoop.run", NO_PHASE, "reward", "reward-blocked"),
        ("ray::RewardSampler.run", NO_PHASE, "reward", "reward-blocked"),
        ("ray::Logger.run", NO_PHASE, None, "user-code-blocked"),
        ("ray::Logger.run", in_method("sync_weights /me/t.py:4"), "sync", "weight-sync-blocked"),
        ("ray::Sampler.run", in_method("score /me/rewards.py:4"), "reward", "reward-blocked"),
    ],
)
def test_an_actor_is_in_the_phase_of_its_stack_or_else_of_its_name(
    command: str, stack: Any, phase: str | None, cause: str
) -> None:
    label = at_work(command, stack=stack)
    assert (label.phase, label.cause) == (phase, cause)
    assert label.node == ProcessNode(ROLLOUT)
    name = command.removeprefix("ray::")
    assert label.whole.startswith(f"the Ray actor in {name} (pid {ROLLOUT}) ")
    assert label.whole.endswith("; ranks 0-2 have no task until then")


@pytest.mark.parametrize(
    ("command", "state", "liveness", "cause"),
    [
        ("ray::Rollout.generate", "T", "never-wakes", "rollout-engine-stalled"),
        ("ray::Rollout.generate", "Z", "dead", "rollout-engine-dead"),
        ("ray::Reward.score", "T", "never-wakes", "reward-blocked"),
        ("ray::Reward.score", "Z", "dead", "reward-blocked"),
        ("ray::Logger.write", "T", "never-wakes", "user-code-blocked"),
    ],
)
def test_an_actor_that_may_not_run_or_has_ended(
    command: str, state: str, liveness: str, cause: str
) -> None:
    label = at_work(command, state=state, stack=NO_PHASE)
    assert (label.liveness, label.cause) == (liveness, cause)
    assert any("kill -CONT" in line for line in label.confirm) is (state == "T")
    assert label.reason == ("is stopped" if state == "T" else "is dead")


@pytest.mark.parametrize("role", ["engine", "engine-worker"])
def test_a_stopped_engine_of_an_actor_is_named_as_one(role: Role) -> None:
    job = RayJob()
    title(job.rollout, "VLLM::EngineCore")
    job.rollout.member = replace(job.rollout.member, role=role)
    job.rollout.state = "T"
    engine = f"the rollout engine's process pid {ROLLOUT} (VLLM::EngineCore)"
    assert only(ray_tasks, job.build).whole.startswith(f"{engine} is stopped")


# Ranks that ask for answers themselves.


def asking() -> RayJob:
    """Rank 1 asks for an answer while 0 and 2 are in a collective."""
    job = RayJob()
    job.generates_nothing()
    for rank in (0, 2):
        job.calls(rank, (*collective("all_reduce")[:2], *in_method("update_policy /home/t.py:31")))
        del job.build.joins[rank]
    job.calls(1, in_method(GET, "fetch /home/me/train.py:45"))
    return job


@pytest.mark.parametrize(
    ("works", "liveness", "does"),
    [(False, "unseen", "makes no progress"), (True, "computing", "uses 90% of a core")],
)
def test_an_answer_that_another_process_works_out(works: bool, liveness: str, does: str) -> None:
    job = asking()
    title(job.rollout, "ray::RolloutActor.generate")
    job.rollout.stack = in_method("generate /home/me/train.py:72")
    if works:
        job.rollout.works(job.rollout.stack, moves=False)
    label = only(ray_tasks, job.build)
    assert (label.culprits, label.node, label.liveness) == ((1,), ProcessNode(ROLLOUT), liveness)
    assert label.reason.startswith(
        f"waits for a Ray result from RolloutActor.generate (pid {ROLLOUT} "
        f"(ray::RolloutActor.generate)), which {does}"
    )


def test_where_all_ask_the_driver_s_wait_is_told_with_the_idle_ranks() -> None:
    job = RayJob()
    job.generates_nothing()
    label = only(ray_tasks, job.build)
    assert (label.culprits, label.node, label.liveness) == ((), ProcessNode(DRIVER), "computing")
    assert label.whole == (
        f"the driver (pid {DRIVER}) waits for a Ray result that no process of this host "
        "computes at train.py:97, main; ranks 0-2 have no task until then"
    )


HAS = RayFact("has", wants={"CPU": 4.0, "GPU": 2.0})
ASSIGNMENT = "PENDING_NODE_ASSIGNMENT"
TURN = "PENDING_ACTOR_TASK_ORDERING_OR_CONCURRENCY"


def task(what: str, reason: str, **more: Any) -> RayFact:
    return RayFact("task", what, reason, **{"age_s": 70.0, **more})


@pytest.mark.parametrize(
    ("facts", "says", "state"),
    [
        (
            [HAS, task("on_gpu", ASSIGNMENT, wants={"GPU": 8.0})],
            "Ray's task on_gpu has been pending for 70 s: it wants 8 GPU, and the cluster has 2",
            "stuck",
        ),
        (  # alike tasks run one after the other
            [HAS, task("on_gpu", ASSIGNMENT, wants={"GPU": 1.0}, count=9)],
            "it wants 9 times 1 GPU, which is not free on any node now",
            "slow",
        ),
        (
            [HAS, task("R.ping", ASSIGNMENT)],
            "R.ping has been pending for 70 s: it wants no resource: its actor, or a process",
            "slow",
        ),
        ([HAS, task("R.score", TURN)], "R.score waits for its turn in the actor, 70 s so", "slow"),
        (
            [task("late", "RUNNING", age_s=5.0), task("R.run", "RUNNING", pid=7, node="node-b")],
            "Ray's task R.run has run for 70 s (pid 7, node-b)",
            "slow",
        ),
        (
            [HAS, RayFact("pending", "task or actor", wants={"x": 1.0})],
            "a task or actor of Ray is pending: it wants 1 x, and the cluster has 0 x",
            "stuck",
        ),
        ([], "that no process of this host computes", "slow"),
    ],
)
def test_what_no_process_does_is_named_as_ray_has_it(
    facts: list[RayFact], says: str, state: str
) -> None:
    job = RayJob()
    job.generates_nothing()
    job.driver.still_s = job.build.waited_s = 70.0
    verdict = diagnose(replace(job.build.build(), ray=tuple(facts))).verdict
    assert "the driver" in verdict.summary.lower()
    assert says in verdict.summary
    assert verdict.state == state
    assert [item.source for item in verdict.evidence].count("ray") == bool(facts)
