"""ms-swift's multi-turn schedulers as `swift rollout` runs them, in their shape since 4.3."""

from __future__ import annotations

from pathlib import Path

from tests.unit.probes.hooks.hooked_job import run_job, trajectories

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
    result = run_job(tmp_path, JOB, modules={"swift.rollout.multi_turn": TURNS})
    assert (result.returncode, result.stdout, result.stderr) == (0, "raised\n", "")
    found = trajectories(tmp_path)
    assert found.outcomes == {"ready": 2, "failed": 1}
    (tool,) = found.tools  # what the base has is no call
    assert (tool.name, tool.calls, tool.errors) == ("Tips.step", 5, 1)
    ready = [one for one in found.shown if one.outcome == "ready"]
    assert all(one.states["generate"] > 0.039 for one in ready)
    assert {one.numbers["tokens"] for one in ready} == {3}


MIXIN = """
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
        "swift.rollout.multi_turn": TURNS, "swift.rlhf_trainers.rollout_mixin": MIXIN,
        "swift.rlhf_trainers.grpo_trainer": TRAINER,
    }  # fmt: skip
    result = run_job(tmp_path, RANK, modules=modules)
    assert (result.returncode, result.stdout, result.stderr) == (0, "raised\n", "")
    found = trajectories(tmp_path)
    assert found.outcomes == {"trained": 4, "dropped: not used": 4, "failed": 4}
    (tool,) = found.tools
    assert (tool.name, tool.calls, tool.errors) == ("Maze.step", 4 + 2 + 1 + 4 + 4, 1)
    one = max(found.shown, key=lambda each: each.requests)
    assert (one.requests, one.calls, one.numbers["version"]) == (3, 3, 5)
    # Three turns of its own, and four calls of others between them.
    least_s = {"generate": 0.15, "tool": 0.15, "reward": 0.05, "queue": 0.2}
    assert all(one.states[state] > seconds - 0.001 for state, seconds in least_s.items())
