"""ms-swift's trainers, over transformers' loop and on Megatron, and its schedulers of turns."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from grpo_doctor_probes.hooks import describing
from tests.unit.probes.hooks.adapters.framework import Job, hooked
from tests.unit.probes.hooks.hooked_job import trajectories

MIXIN = """
class RolloutTrainerMixin:
    multi_turn_scheduler = None

    def _prepare_scheduler(self):
        return "prepared"
"""


class Scheduler:
    def step(self) -> str:
        return "turn"


def test_turns_of_a_scheduler_are_tools(job: Job) -> None:
    made = hooked("swift.rlhf_trainers.rollout_mixin", MIXIN).RolloutTrainerMixin()
    assert made._prepare_scheduler() == "prepared"
    made.multi_turn_scheduler = type("Scheduler", (Scheduler,), {})()
    assert made._prepare_scheduler() == "prepared"
    assert made.multi_turn_scheduler.step() == "turn"
    assert (job.spans, job.errors) == (["rollout/tools"], 0)


LAUNCH = """
class SwiftSft:
    def __init__(self, args): self.args = args
    def train(self, trainer): return trainer
"""


def test_the_launchers_arguments_are_kept_for_the_settings(job: Job) -> None:
    launch = hooked("swift.pipelines.train.sft", LAUNCH).SwiftSft(SimpleNamespace(lora_rank=8))
    assert launch.train("trainer") == "trainer"
    assert describing.PARSED == {"lora_rank": 8}


BASE = """
class BaseMegatronTrainer:
    def train(self):
        return "trained"

    def train_step(self, *args):
        return args

    def on_log(self, logs):
        logs.pop("n_steps", None)

    def _prepare_data_iterator(self):
        return iter([1, 2]), None
"""


class Optimizer:
    def step(self) -> str:
        return "stepped"


def optimizer() -> Any:
    """One of a class of its own: what is hooked is the class."""
    return type("Optimizer", (Optimizer,), {})()


def length() -> float:
    return 1.0


@pytest.fixture
def megatron() -> Any:
    made = hooked("swift.megatron.trainers.base", BASE).BaseMegatronTrainer()
    made.args, made.state = SimpleNamespace(lr=1, _hidden=1), SimpleNamespace(iteration=6)
    made.optimizer, made.reward_funcs = optimizer(), [length]
    return made


def test_a_step_on_megatron_begins_with_train_step(job: Job, megatron: Any) -> None:
    assert megatron.train_step("data") == ("data",)
    assert megatron.optimizer.step() == "stepped"
    assert job.recording.header.step == 7
    assert (job.spans, job.errors) == (["train", "optimizer"], 0)


@pytest.mark.parametrize(("rank", "first"), [(None, True), ("0", True), ("1", False)])
def test_the_first_rank_describes_the_run_and_writes_its_metrics(
    job: Job, megatron: Any, monkeypatch: pytest.MonkeyPatch, rank: str | None, first: bool
) -> None:
    if rank is not None:
        monkeypatch.setenv("RANK", rank)
    assert megatron.train() == "trained"
    megatron.on_log({"loss": 0.5, "n_steps": 1})
    assert job.facts.get("config") == ({"lr": 1} if first else None)
    assert megatron.reward_funcs[0]() == 1.0
    assert job.spans == ["reward/length"]
    assert job.metrics == ([(6, {"loss": 0.5})] if first else [])


def test_batches_are_timed_and_an_iterator_that_is_none_stays_so(job: Job, megatron: Any) -> None:
    train, evaluation = megatron._prepare_data_iterator()
    assert evaluation is None
    assert list(train) == [1, 2]
    assert job.spans == ["dataload"] * 3  # that there is no more takes time too


TURNS = """
import asyncio
from types import SimpleNamespace

class RolloutScheduler:
    def __init__(self, infer_engine=None, max_turns=None):
        self.infer_engine, self.max_turns = infer_engine, max_turns

    def __getattr__(self, key):
        return getattr(object.__getattribute__(self, "infer_engine"), key)

    async def on_turn_end(self, request):
        return {}

    async def async_infer(self, requests):
        return await asyncio.gather(*(self.run(request) for request in requests))

class MultiTurnScheduler(RolloutScheduler):
    async def run(self, request):
        for _ in range(self.max_turns):
            await self.infer_engine.infer_async(request)
            await self.on_turn_end(request)
            self.step(request)
        return SimpleNamespace(response_token_ids=[[1, 2], [3]])
"""
JOB = """
import asyncio
from swift.rollout.multi_turn import MultiTurnScheduler

class Engine:
    async def infer_async(self, request):
        await asyncio.sleep(0.02)

class Tips(MultiTurnScheduler):
    def step(self, request):
        if request == "broken":
            raise KeyError(request)

assert asyncio.iscoroutinefunction(Tips(Engine(), 2).run)
asyncio.run(Tips(Engine(), 2).async_infer(["a", "b"]))
try:
    asyncio.run(Tips(Engine(), 2).async_infer(["broken"]))
except KeyError:
    print("raised")
Tips(max_turns=2)  # in a rank
"""


def test_each_run_of_a_scheduler_is_a_trajectory(tmp_path: Path) -> None:
    found = trajectories(tmp_path, JOB, {"swift.rollout.multi_turn": TURNS}, "raised\n")
    assert found.outcomes == {"ready": 2, "failed": 1}
    (tool,) = found.tools  # what the base has is no call
    assert (tool.name, tool.calls, tool.errors) == ("Tips.step", 5, 1)
    ready = [one for one in found.shown if one.outcome == "ready"]
    assert all(one.states["generate"] > 0.039 for one in ready)
    assert {one.numbers["tokens"] for one in ready} == {3}


TURNS_MIXIN = """
from types import SimpleNamespace as S

class RolloutTrainerMixin:
    \"\"\"As 4.3 has it: turns of all samples together.\"\"\"

    def _infer_single_or_multi_turn(self, samples, request_config, is_global_inputs=False):
        requests = [S(uuid=one.request_id, turns=one.turns) for one in samples]
        self._rollout(samples, request_config)
        while requests:
            requests = [one for one in requests if self.multi_turn_scheduler.step(one, None, 1)]
            self._rollout(requests, request_config)
        return samples

    def _rollout(self, samples, request_config, is_global_inputs=False):
        self.generate(len(samples))
"""
TRAINER = """
from swift.rlhf_trainers.rollout_mixin import RolloutTrainerMixin

class GRPOTrainer(RolloutTrainerMixin):
    def _compute_rewards_per_func(self, samples):
        return self.score(samples)
"""
RANK = """
import time
from types import SimpleNamespace as S
from swift.rlhf_trainers.grpo_trainer import GRPOTrainer
from swift.rollout.multi_turn import MultiTurnScheduler

class Maze(MultiTurnScheduler):
    def step(self, request, choice, turn):
        time.sleep(0.05)  # the others wait
        request.turns -= 1
        if request.turns < 0:
            raise KeyError(request)
        return request.turns

class Trainer(GRPOTrainer):
    multi_turn_scheduler, enable_server_multi_turn = Maze(max_turns=3), False
    args, model, state = S(async_generate=False), S(training=True), S(global_step=5)

    def generate(self, samples):
        time.sleep(0.05)

    def score(self, samples):
        time.sleep(0.05)

trainer = Trainer()

def rollout(*turns):
    samples = [S(request_id=f"chat-{n}", turns=count) for n, count in enumerate(turns)]
    return trainer._infer_single_or_multi_turn(samples, None)

trainer._compute_rewards_per_func(rollout(1, 1, 2, 3))
trainer.model.training = False
rollout(1, 1)
trainer.model.training = True
rollout(1, 1, 1, 1)  # resampled, without a reward
try:
    rollout(1, 1, 1, 0)
except KeyError:
    print("raised")
"""


def test_the_samples_of_a_rank_take_turns_together(tmp_path: Path) -> None:
    modules = {
        "swift.rollout.multi_turn": TURNS, "swift.rlhf_trainers.rollout_mixin": TURNS_MIXIN,
        "swift.rlhf_trainers.grpo_trainer": TRAINER,
    }  # fmt: skip
    found = trajectories(tmp_path, RANK, modules, "raised\n")
    assert found.outcomes == {"trained": 4, "dropped: not used": 4, "failed": 4}
    (tool,) = found.tools
    assert (tool.name, tool.calls, tool.errors) == ("Maze.step", 4 + 2 + 1 + 4 + 4, 1)
    one = max(found.shown, key=lambda each: each.requests)
    assert (one.requests, one.calls, one.numbers["version"]) == (3, 3, 5)
    # Three turns of its own, and four calls of others between them.
    least_s = {"generate": 0.15, "tool": 0.15, "reward": 0.05, "queue": 0.2}
    assert all(one.states[state] > seconds - 0.001 for state, seconds in least_s.items())
