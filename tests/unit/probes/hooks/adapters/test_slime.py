"""Ranks of slime and miles, and their rollouts, by stand-ins in the shape of their modules."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from grpo_doctor_probes.record.sidecar import ROLE
from tests.unit.probes.hooks.adapters.framework import Job, hooked
from tests.unit.probes.hooks.hooked_job import trajectories

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
    assert (facts["framework"], facts["world_size"]) == (actors.__name__.partition(".")[0], 8)
    assert "_hidden" not in facts["config"]


def test_a_critics_ranks_have_a_role_and_no_steps(job: Job, actors: Any) -> None:
    critic = actors.MegatronTrainRayActor(0)
    critic.init(ARGS, role="critic")
    critic.train(3, {})
    assert ROLE.of_this_process() == "critic"
    actors.MegatronTrainRayActor(1).init(ARGS, "actor")  # another rank describes nothing
    assert (job.steps, job.facts, job.errors) == ([], {}, 0)


def test_metrics_of_a_rollout_are_kept(job: Job) -> None:
    logs = hooked("slime.observability.logging_utils", "def log(args, metrics, step_key): pass")
    logs.log(ARGS, {"rollout/step": 3, "rollout/raw_reward": 0.5}, "rollout/step")
    logs.log(ARGS, {"train/step": 9, "train/loss": 0.1}, "train/step")
    assert [step for step, _ in job.metrics] == [3]
    assert job.metrics[0][1]["rollout/raw_reward"] == 0.5


HTTP = """
import asyncio

async def post(url, payload=None, headers=None):
    await asyncio.sleep(0.08)
    return {} if url.endswith("abort") else {"meta_info": {"id": f"{payload} {id(object())}",
        "e2e_latency": 0.08, "queue_time": 0.02, "first_token_latency": 0.03}}
"""
ROLLOUT = """
import asyncio
from types import SimpleNamespace as Space
from {package}.utils.http_utils import post
from {package}.rollout.generate_utils.tool_call_utils import _execute_tool_call

class Sample:
    def __init__(self, index, fate="completed"):
        self.index, self.group_index, self.fate = index, index // 2, fate
        self.weight_versions, self.response_length, self.reward = [], 0, None
        self.status = Space(value="pending")

async def generate(args, sample, params):
    for turn in range(2):
        await post("http://router/generate", sample.index)
        sample.weight_versions.append("default" if turn else "3")
        await _execute_tool_call(Space(name="look_up"), asyncio.sleep)
    sample.response_length, sample.status.value = 7, sample.fate
    return sample

async def async_rm(args, sample):
    await asyncio.sleep(0.03)
    return {{"score": 0.5}}

async def batched_async_rm(args, samples):
    await asyncio.sleep(0.03)
    return [0.25] * len(samples)

async def generate_and_rm(args, sample, params, evaluation=False):
    if sample.status.value == "completed":
        return sample
    async with args.semaphore:
        sample = await generate(args, sample, params)
    if not args.group_rm and sample.fate == "completed":
        sample.reward = await async_rm(args, sample)
    return sample

async def generate_and_rm_group(args, group, params, evaluation=False):
    tasks = [asyncio.create_task(generate_and_rm(args, each, params)) for each in group]
    group = await asyncio.gather(*tasks)
    if args.group_rm:
        for sample, reward in zip(group, await batched_async_rm(args, group)):
            sample.reward = reward
    return group

async def generate_rollout_async(args, rollout_id, source):
    groups = await asyncio.gather(*(generate_and_rm_group(args, g, {{}}) for g in source))
    await post("http://router/abort")
    kept = [group for group in groups if group[0].fate == "completed" and group[0].index < 4]
    late = [group for group in groups if group[0].index >= 6]
    return Space(samples=kept), late
"""
TOOLS = """
async def _execute_tool_call(call, execute):
    await execute(0.02)
"""
TRAINED = """
from types import SimpleNamespace

class MegatronTrainRayActor:
    weight_updater = SimpleNamespace(weight_version=5)

    def train_actor(self, rollout_id, data): pass
"""
JOB = """
import asyncio, sys
from types import SimpleNamespace
from {package}.rollout.sglang_rollout import Sample, generate_and_rm, generate_rollout_async
from {package}.backends.megatron_utils.actor import MegatronTrainRayActor

async def main():
    args = SimpleNamespace(group_rm={group_rm}, semaphore=asyncio.Semaphore(4), reward_key="score",
                           dynamic_sampling_filter_path="mine" if {group_rm} else None)
    fates = ["completed"] * 6 + ["completed", "aborted"]
    samples = [Sample(index, fate) for index, fate in enumerate(fates)]
    groups = [samples[at:at + 2] for at in range(0, 8, 2)]
    output, late = await generate_rollout_async(args, 0, groups)
    assert [sample.index for group in output.samples for sample in group] == [0, 1, 2, 3]
    await generate_and_rm(args, Sample(99), {{}}, evaluation=True)
    MegatronTrainRayActor().train_actor(0, {{"sample_indices": [0, 1, 2, 3]}})

asyncio.run(main())
"""


@pytest.mark.parametrize("group_rm", [False, True])
@pytest.mark.parametrize("package", ["slime", "miles"])
def test_where_the_time_of_a_sample_went(package: str, group_rm: bool, tmp_path: Path) -> None:
    modules = {
        f"{package}.utils.http_utils": HTTP,
        f"{package}.rollout.sglang_rollout": ROLLOUT.format(package=package),
        f"{package}.rollout.generate_utils.tool_call_utils": TOOLS,
        f"{package}.backends.megatron_utils.actor": TRAINED,
    }
    program = JOB.format(package=package, group_rm=group_rm)
    found = trajectories(tmp_path, program, modules)
    dropped = "dropped: filtered" if group_rm else "dropped: not used"
    assert found.outcomes == {"trained": 4, "dropped: aborted": 1, dropped: 2, "waiting": 1}
    states = {name: spread.total for name, spread in found.states.items()}
    assert states["engine queue"] == pytest.approx(16 * 0.02, rel=0.2)
    assert states["prefill"] == pytest.approx(16 * 0.01, rel=0.2)
    assert states["decode"] == pytest.approx(16 * 0.05, rel=0.3)
    assert states["reward"] == pytest.approx((6 if group_rm else 7) * 0.03, rel=0.5)
    assert states["queue"] >= 4 * 0.15  # four samples wait until four others are done
    (tool,) = found.tools
    assert (tool.name, tool.calls, tool.errors) == ("look_up", 16, 0)
    assert found.staleness is not None
    assert found.staleness.p50 == 2  # version 3 has said what version 5 was trained on
    one = next(shown for shown in found.shown if shown.outcome == "trained")
    assert (one.requests, one.numbers["tokens"], one.numbers["version"]) == (2, 7, 3)
    assert one.numbers["reward"] == (0.25 if group_rm else 0.5)
