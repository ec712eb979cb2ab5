"""Conversations of AsyncGRPOTrainer's rollout loop, in the shape that it has since TRL 1.16."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from grpo_doctor_reports.schema.trajectories import Trajectories
from tests.unit.probes.hooks.hooked_job import TRAINER, trajectories

WORKER = """
import asyncio, inspect, queue, time
from types import SimpleNamespace

ROW = SimpleNamespace(input_ids=[1])

class _AsyncRolloutLoop:
    def __init__(self, reward_funcs, environments=(), broken=False):
        self.reward_funcs, self.broken = reward_funcs, broken
        self.rollout_buffer = queue.Queue()
        self._environment_pool = {None: list(environments)}
        self.model_version = 3

    def run(self):
        asyncio.run(self._run_loops())

    async def _run_loops(self):
        tasks = []
        for group in range(2):
            for environment in self._environment_pool[None] or [None]:
                if environment is not None:
                    environment.reset()
                tools = {"look_up": look_up} if environment is None else {"move": environment.move}
                tasks.append(asyncio.create_task(
                    self._generate_one("prompt", tool_dict=tools, tools=[], group_id=group)))
        done = await asyncio.gather(*tasks, return_exceptions=True)
        if self.broken:
            return
        for environment in self._environment_pool[None]:
            assert inspect.iscoroutinefunction(environment.get_reward)
            await environment.get_reward()
        await asyncio.sleep(0.05)
        group = SimpleNamespace(completions_sequences=[result[2] for result in done])
        for sample in await self._score_group(group):
            sample.enqueued_at = time.time()
            self.rollout_buffer.put_nowait(sample)

    def _push_metrics(self, values): ...

    async def _generate_one(self, prompt, tool_dict, tools, group_id=0):
        await self._generate_one_turn([1])
        await self._execute_tool_calls([], tool_dict)
        await self._generate_one_turn([1])
        return [], [1, 2, 3], [ROW, ROW][:2 - group_id], 1, 0, None

    async def _generate_one_turn(self, ids):
        await asyncio.sleep(0.02)
        if self.broken:
            raise ValueError("the engine is gone")

    async def _execute_tool_calls(self, calls, tools):
        loop = asyncio.get_running_loop()
        for tool in tools.values():
            await loop.run_in_executor(None, tool)

    async def _score_group(self, group):
        await asyncio.to_thread(self.reward_funcs[0])
        return [SimpleNamespace(model_version=3, metrics={"reward": 0.5}, enqueued_at=None)
                for rows in group.completions_sequences for _ in rows]

def look_up():
    time.sleep(0.03)
"""
DATASET = """
class RolloutQueueDataset:
    def __init__(self, queue, max_staleness):
        self.queue, self.max_staleness = queue, max_staleness
        self.model_version_fn = lambda: 5

    def __iter__(self):
        while True:
            sample = self.queue.get(timeout=1)
            if 5 - sample.model_version > self.max_staleness:
                continue
            yield sample
"""
NAMES = {"trl.experimental.async_grpo.async_grpo_trainer": DATASET, "transformers.trainer": TRAINER}
JOB = """
import time
from trl.experimental.async_grpo.async_rollout_worker import _AsyncRolloutLoop
from trl.experimental.async_grpo.async_grpo_trainer import RolloutQueueDataset

def length(): time.sleep(0.04)

class Maze:
    async def get_reward(self): time.sleep(0.01)
    def reset(self): time.sleep(0.01)
    def move(self): raise_or_not()

def raise_or_not(): ...

loop = _AsyncRolloutLoop([length], {environments}, {broken})
loop.run()
time.sleep(0.05)
samples = iter(RolloutQueueDataset(loop.rollout_buffer, {staleness}))
try:
    [next(samples) for _ in range(3)]
except Exception as error:
    print(type(error).__name__)
"""


def found_in(
    folder: Path, worker: str = WORKER, *, environments: str = "[]", broken: bool = False,
    staleness: int = 4, prints: str = "",
) -> Trajectories:  # fmt: skip
    program = JOB.replace("{environments}", environments).replace("{broken}", str(broken))
    program = program.replace("{staleness}", str(staleness))
    modules = {**NAMES, "trl.experimental.async_grpo.async_rollout_worker": worker}
    return trajectories(folder, program, modules, prints)


def test_a_conversation_is_followed_from_its_first_turn_to_the_trainer(tmp_path: Path) -> None:
    found = found_in(tmp_path)
    assert found.outcomes == {"trained": 2}
    for one in (each for each in found.shown if each.why == "slowest"):
        assert (one.requests, one.calls, one.staleness) == (2, 1, 2)
        assert one.numbers["reward"] == 0.5
        assert (one.numbers["version"], one.numbers["tokens"]) == (3, 3)
        states = one.states
        assert states["generate"] > 0.038
        assert states["tool"] > 0.029
        assert states["queue"] > 0.04
        assert states["reward"] > 0.039
        assert states["buffer"] > 0.04
        names = [part.state for part in one.parts]
        assert names == ["generate", "tool", "generate", "queue", "reward", "buffer"]
    assert [tool.name for tool in found.tools] == ["look_up"]


def test_an_environment_is_named_with_what_it_does_before_and_after(tmp_path: Path) -> None:
    found = found_in(tmp_path, environments="[Maze()]")
    calls = {tool.name: tool.calls for tool in found.tools}
    assert calls == {"Maze.reset": 2, "Maze.move": 2}
    assert found.states["reward"].total > 0.04 * 2 + 0.009


# Before a conversation could fork, a sequence was its tokens.
UNFORKED = (
    WORKER.replace("ROW, ROW", "7, 8").replace("completions_sequences", "rows")
    .replace("sample.enqueued_at", "sample.at").replace("enqueued_at=None", "at=0")
)  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "worker", "printed", "outcome"),
    [
        ({"staleness": 1}, WORKER, "Empty\n", "dropped: stale"),
        ({"broken": True}, WORKER, "Empty\n", "failed"),
        ({}, UNFORKED, "", "ready"),
    ],
)
def test_how_conversations_end(
    tmp_path: Path, settings: dict[str, Any], worker: str, printed: str, outcome: str
) -> None:
    assert found_in(tmp_path, worker, prints=printed, **settings).outcomes == {outcome: 2}
