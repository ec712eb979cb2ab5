"""Ranks of slime and miles, by stand-ins in the shape of its actor and timer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from grpo_doctor_probes.record.sidecar import ROLE
from tests.unit.probes.hooks.adapters.framework import Job, hooked

TIMER = """
from contextlib import contextmanager

class Timer:
    def start(self, name): pass
    def end(self, name): pass

    @contextmanager
    def context(self, name):
        self.start(name)
        try:
            yield
        finally:
            self.end(name)

TIMER = Timer()

def timer(name_or_func):
    if isinstance(name_or_func, str):
        return TIMER.context(name_or_func)

    def wrapper(*args):
        with TIMER.context(name_or_func.__name__):
            return name_or_func(*args)

    return wrapper
"""
ACTOR = """
class MegatronTrainRayActor:
    def __init__(self, rank):
        self._rank, self._world_size = rank, 8

    def init(self, args, role, with_ref=False):
        self.args, self.role = args, role
        return args.start_rollout_id

    def train(self, rollout_id, data):
        self.wake_up()
        with timer("data_preprocess"):
            pass
        self.train_actor(rollout_id, data)
        self.sleep()
        return data

    def train_actor(self, rollout_id, data):
        with timer("train"):
            with timer("ref_log_probs"):
                pass
            with timer("log_probs"):
                pass
            with timer("actor_train"):
                pass

    @timer
    def update_weights(self): pass

    @timer
    def sleep(self): pass

    @timer
    def wake_up(self): pass
"""
ARGS = SimpleNamespace(start_rollout_id=3, num_rollout=5, lr=1e-6, _hidden=1)
STEP = [
    "rollout/wait", "sync", "offload", "dataload", "logprob/reference", "logprob/old", "train",
    "offload",
]  # fmt: skip


@pytest.fixture(params=["slime.observability.timer", "slime.utils.timer", "miles.utils.timer"])
def actors(request: pytest.FixtureRequest) -> Any:
    timers = hooked(request.param, TIMER)
    package = request.param.partition(".")[0]
    return hooked(f"{package}.backends.megatron_utils.actor", ACTOR, timer=timers.timer)


def test_a_step_is_a_wait_for_rollouts_and_what_is_trained_on_them(job: Job, actors: Any) -> None:
    actor = actors.MegatronTrainRayActor(0)
    assert actor.init(ARGS, "actor", with_ref=True) == 3
    for rollout_id in (3, 4):
        actor.update_weights()
        assert actor.train(rollout_id, {}) == {}
    assert (job.steps, job.spans, job.errors) == ([3, 4], STEP * 2, 0)
    assert ROLE.of_this_process() is None
    facts = job.facts
    assert facts is not None
    assert (facts["framework"], facts["world_size"]) == (actors.__name__.partition(".")[0], 8)
    assert "_hidden" not in facts["config"]


def test_a_critics_ranks_have_a_role_and_no_steps(job: Job, actors: Any) -> None:
    critic = actors.MegatronTrainRayActor(0)
    critic.init(ARGS, role="critic")
    critic.train(3, {})
    assert ROLE.of_this_process() == "critic"
    assert (job.steps, job.facts, job.errors) == ([], None, 0)


def test_other_ranks_describe_nothing(job: Job, actors: Any) -> None:
    actors.MegatronTrainRayActor(1).init(ARGS, "actor")
    assert (job.facts, job.errors) == (None, 0)


def test_metrics_of_a_rollout_are_kept(job: Job) -> None:
    logs = hooked("slime.observability.logging_utils", "def log(args, metrics, step_key): pass")
    logs.log(ARGS, {"rollout/step": 3, "rollout/raw_reward": 0.5}, "rollout/step")
    logs.log(ARGS, {"train/step": 9, "train/loss": 0.1}, "train/step")
    assert [step for step, _ in job.metrics] == [3]
    assert job.metrics[0][1]["rollout/raw_reward"] == 0.5
