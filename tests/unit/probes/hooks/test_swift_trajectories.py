"""ms-swift's multi-turn schedulers as `swift rollout` runs them, in their shape since 4.3."""

from __future__ import annotations

from pathlib import Path

from tests.unit.probes.hooks.hooked_job import recorded, run_job

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
    trace = recorded(tmp_path)
    assert not any("internal errors" in note for note in trace.loss.notes)
    found = trace.trajectories
    assert found is not None
    assert found.outcomes == {"ready": 2, "failed": 1}
    (tool,) = found.tools  # what the base has is no call
    assert (tool.name, tool.calls, tool.errors) == ("Tips.step", 5, 1)
    ready = [one for one in found.shown if one.outcome == "ready"]
    assert all(one.states["generate"] > 0.039 for one in ready)
    assert {one.numbers["tokens"] for one in ready} == {3}
