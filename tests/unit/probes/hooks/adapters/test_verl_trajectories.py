"""verl's agent loops and replay buffer, in their shape since 0.9: samples, tools, groups."""

from __future__ import annotations

import pytest

from grpo_doctor_reports.schema.trajectories import Trajectories
from tests.unit.probes.hooks.hooked_job import trajectories

AGENT = """
import asyncio
from types import SimpleNamespace
from verl.experimental.agent_loop.tool_agent_loop import ToolAgentLoop
from verl.workers.rollout.llm_server import LLMServerClient

class AgentLoopWorker:
    def __init__(self, tools):
        self.client, self.tools = LLMServerClient(), tools

    async def _run_agent_loop(self, params, trajectory, *, agent_name, trace=True, **kwargs):
        loop = ToolAgentLoop(self.client, self.tools)
        output = await loop.run(kwargs["calls"])
        return await self._agent_loop_postprocess(output, trajectory["validate"], **kwargs)

    async def _agent_loop_postprocess(self, output, validate, **kwargs):
        await self._compute_score([output], kwargs)

    async def _compute_score(self, outputs, kwargs):
        await asyncio.sleep(0.03)
"""
TOOLS = """
from types import SimpleNamespace

class ToolAgentLoop:
    def __init__(self, client, tools):
        self.client, self.tools = client, tools

    async def run(self, calls):
        for name in calls:
            await self.client.generate("id")
            await self._call_tool(SimpleNamespace(name=name), {}, None)
        await self.client.generate("id")
        return SimpleNamespace(response_mask=[1, 0, 1], extra_fields={"min_global_steps": 1,
                               "max_global_steps": 2})

    async def _call_tool(self, tool_call, tools_kwargs, agent_data):
        if tool_call.name not in self.tools:
            return SimpleNamespace(text=f"Unknown function '{tool_call.name}'"), 0.0, {}
        try:
            text = await self.tools[tool_call.name].execute("id", {})
        except Exception as error:
            text = f"Error executing tool '{tool_call.name}': {error}"
        return SimpleNamespace(text=text), 0.0, {}
"""
CLIENT = """
import asyncio, itertools
from verl.workers.rollout.vllm_rollout.vllm_async_server import vLLMHttpServer

NAMES, SERVER = itertools.count(), vLLMHttpServer()

class LLMServerClient:
    async def _acquire_server(self, request_id, **extra):
        await asyncio.sleep(0.02)

    def _vllm_request_id(self, request_id):
        return f"name {next(NAMES)}"

    async def generate(self, request_id, **more):
        await self._acquire_server(request_id)
        await SERVER._park_until_admitted(self._vllm_request_id(request_id))
        await asyncio.sleep(0.02)
"""
SERVER = """
import asyncio

class vLLMHttpServer:
    _submission_paused = True  # until the first request is let in

    async def _park_until_admitted(self, request_id):
        if self._submission_paused:
            await asyncio.sleep(0.04)
        self._submission_paused = False
"""
BUFFER = """
class ReplayBuffer:
    def _materialize_batch(self, partition_id, selected_prompt_uids, partition_snapshot):
        return selected_prompt_uids

    def _evict_terminal_groups(self, global_steps, partition_id, eviction_reasons):
        return set.union(*eviction_reasons[:3])
"""
MODULES = {
    "verl.experimental.agent_loop.agent_loop": AGENT,
    "verl.experimental.agent_loop.tool_agent_loop": TOOLS,
    "verl.workers.rollout.llm_server": CLIENT,
    "verl.workers.rollout.vllm_rollout.vllm_async_server": SERVER,
    "verl.trainer.ppo.v1.replay_buffer": BUFFER,
}
JOB = """
import asyncio, uuid
from verl.experimental.agent_loop.agent_loop import AgentLoopWorker
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer

class Tool:
    def __init__(self, error=None):
        self.error = error

    async def execute(self, instance_id, parameters):
        if self.error:
            raise self.error
        await asyncio.sleep(0.01)
        return "found"

worker = AgentLoopWorker({"search": Tool(), "slow": Tool(asyncio.TimeoutError()),
                          "broken": Tool(KeyError("x"))})
uids = ["first", "second"]

def sample(uid, session, calls, validate=False):
    trajectory = {"step": 4, "sample_index": 12, "rollout_n": 0, "validate": validate}
    return worker._run_agent_loop({}, trajectory, agent_name="tool_agent", uid=uid,
                                  session_id=session, calls=calls)

async def main():
    await asyncio.gather(*(sample(uid, n, ["search", "slow", "broken", "made up"])
                           for uid in uids for n in range(2)))
    await sample("evaluated", 0, ["search"], validate=True)
    try:
        await sample("third", 0, None)
    except TypeError:
        print("raised")

asyncio.run(main())
buffer = ReplayBuffer()
assert buffer._evict_terminal_groups(4, "train", ({"second"}, set(), set(), {})) == {"second"}
assert buffer._materialize_batch("train", ["first"], {}) == ["first"]
buffer._materialize_batch("val", ["first"], {})
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Trajectories:
    return trajectories(tmp_path_factory.mktemp("verl"), JOB, MODULES, "raised\n")


def test_each_run_of_an_agent_loop_is_a_trajectory_but_for_evaluations(found: Trajectories) -> None:
    assert found.count == 5
    assert found.outcomes == {"dropped: stale": 2, "failed": 1, "trained": 2}


def test_its_time_is_divided(found: Trajectories) -> None:
    one = next(each for each in found.shown if each.outcome == "trained")
    assert one.requests == 5
    assert one.states["queue"] > 0.09
    assert one.states["generate"] > 0.09
    assert one.states["tool"] > 0.009
    assert one.states["reward"] > 0.029
    assert one.states["paused"] > 0.039  # its first request, by the server's own words
    facts = {"group": 12, "step": 4, "version": 1, "last_version": 2, "tokens": 2}
    assert {name: one.numbers[name] for name in facts} == facts


def test_what_a_tool_raises_is_known_and_made_up_names_are_one(found: Trajectories) -> None:
    calls = {tool.name: (tool.calls, tool.errors, tool.time_outs) for tool in found.tools}
    assert calls == {
        "search": (4, 0, 0), "slow": (4, 0, 4), "broken": (4, 4, 0), "unknown name": (4, 4, 0),
    }  # fmt: skip
