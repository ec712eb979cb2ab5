"""OpenRLHF's executors, in their shape since 0.9.1: samples, environments, rewards, the trainer."""

from __future__ import annotations

import pytest

from grpo_doctor_reports.schema.trajectories import Trajectories
from tests.unit.probes.hooks.hooked_job import trajectories

ENGINE = """
import asyncio

class RolloutRayActor:
    def __init__(self, executor):
        self.executor = executor

    async def update_weight(self, name, empty_cache=False): ...

    async def generate(self, prompt):
        await asyncio.sleep(0.02)

    async def generate_responses(self, prompt, num_samples):
        work = (self.executor.execute(prompt, self) for _ in range(num_samples))
        return await asyncio.gather(*work)
"""
AGENT = """
import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context

class AgentInstanceBase:
    async def reset(self, states): ...

def answer(reward):
    return {"action_ranges": [(2, 5), (7, 8)], "reward": reward}

class MultiTurnAgentExecutor:
    def __init__(self, agent_instance_cls):
        self.kind = agent_instance_cls

    async def execute(self, prompt, llm_engine):
        instance = self.kind()
        await instance.reset({})
        await llm_engine.generate(prompt)
        await instance.step({"prompt": prompt})
        return answer(0.5)

class SingleTurnAgentExecutor:
    def __init__(self, reward_func):
        self.reward_func, self.pool = reward_func, ThreadPoolExecutor(1)

    async def execute(self, prompt, llm_engine):
        await llm_engine.generate(prompt)
        return answer(await self._fetch_rewards_via_func(prompt))

    async def _fetch_rewards_via_func(self, prompt):
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self.pool, copy_context().run, self.reward_func, prompt)
"""
SAMPLES = """
import asyncio
from types import SimpleNamespace

class SamplesGenerator:
    def __init__(self, engine):
        self.engine = engine

    def _generate_vllm(self, prompts, dynamic_filtering):
        kept = []
        for prompt in prompts:
            answers = asyncio.run(self.engine.generate_responses(prompt, 2))
            samples = [self._process_response_into_experience(one) for one in answers]
            kept += samples if prompt != "easy" else []
        return kept, len(prompts), False

    def _process_response_into_experience(self, response):
        return SimpleNamespace(**response)
"""
TRAINER = """
class BasePPOTrainer:
    def train_step(self, samples, global_step):
        return [sorted(vars(sample)) for sample in samples]

    def evaluate(self, generate):
        return generate()

class PPOTrainer(BasePPOTrainer):
    evaluate = BasePPOTrainer.evaluate
"""
MODULES = {
    "openrlhf.trainer.ray.vllm_engine": ENGINE,
    "openrlhf.utils.agent": AGENT,
    "openrlhf.trainer.ppo_utils.samples_generator": SAMPLES,
    "openrlhf.trainer.ppo_trainer": TRAINER,
}
JOB = """
import asyncio, time
from openrlhf.trainer.ppo_trainer import PPOTrainer
from openrlhf.trainer.ppo_utils.samples_generator import SamplesGenerator
from openrlhf.trainer.ray.vllm_engine import RolloutRayActor
from openrlhf.utils.agent import (
    AgentInstanceBase, MultiTurnAgentExecutor, SingleTurnAgentExecutor,
)

class Maze(AgentInstanceBase):
    async def step(self, states):
        await asyncio.sleep(0.01)
        if states["prompt"] == "hard":
            raise TimeoutError

def judged(prompt):
    time.sleep(0.03)
    return 0.25

class Elsewhere:
    async def generate_responses(self, prompt, num_samples):
        return [{"grpo_doctor": (5.0, 0)}]  # of an engine in another process

SamplesGenerator(Elsewhere())._generate_vllm(["easy"], dynamic_filtering=True)
maze, judge = (RolloutRayActor(executor) for executor in
               (MultiTurnAgentExecutor(Maze), SingleTurnAgentExecutor(judged)))
MultiTurnAgentExecutor(Maze)  # once more: its methods are wrapped once
trainer = PPOTrainer()
kept, *_ = SamplesGenerator(maze)._generate_vllm(["usual", "easy"], dynamic_filtering=True)
print(trainer.train_step(kept, 0)[0])
kept, *_ = SamplesGenerator(judge)._generate_vllm(["judged"], dynamic_filtering=False)
trainer.train_step(kept, 1)
trainer.evaluate(lambda: SamplesGenerator(maze)._generate_vllm(["eval"], False))
asyncio.run(maze.update_weight("last", empty_cache=True))
try:
    SamplesGenerator(maze)._generate_vllm(["hard"], False)
except TimeoutError:
    print("raised")
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Trajectories:
    prints = "['action_ranges', 'grpo_doctor', 'reward']\nraised\n"
    return trajectories(tmp_path_factory.mktemp("openrlhf"), JOB, MODULES, prints)


def test_each_call_of_an_executor_is_a_trajectory_but_for_evaluations(found: Trajectories) -> None:
    assert found.outcomes == {"dropped: filtered": 2, "failed": 2, "trained": 4}


def test_what_an_environment_and_a_reward_take_is_theirs(found: Trajectories) -> None:
    (tool,) = found.tools  # what it only inherits is no call
    assert (tool.name, tool.calls) == ("Maze.step", 6)
    assert tool.time_outs in {1, 2}  # what the first raises may cancel the second
    judged = [one for one in found.shown if "reward" in one.states]
    assert all(one.states["reward"] > 0.029 for one in judged)
    assert sum(one.states["queue"] for one in judged) > 0.029  # for the only thread
    assert all(one.states["generate"] > 0.019 for one in found.shown)


def test_facts_of_an_answer_reach_the_trainer(found: Trajectories) -> None:
    assert {one.numbers["version"] for one in found.shown} == {0, 1}
    one = next(each for each in found.shown if "reward" in each.states)
    assert (one.numbers["tokens"], one.numbers["reward"]) == (4, 0.25)
    assert (one.outcome, one.staleness) == ("trained", 1)  # no sync came between
