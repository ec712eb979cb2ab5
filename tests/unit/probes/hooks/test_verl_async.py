"""verl's trainers beside which a rollout of its own runs, in their shape of 0.8 and 0.9."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from grpo_doctor.trace.model import Kind
from tests.unit.probes.hooks.hooked_job import recorded, run_job, span_names, step_numbers
from tests.unit.probes.hooks.test_verl import PROFILER

FULLY_ASYNC = "verl.experimental.fully_async_policy"
STEPPING = """
from verl.utils.debug import marked_timer

class {name}:
    global_steps = 0

    async def fit(self):
        for _ in range(2):
            self.global_steps += 1
            with marked_timer("step", {{}}):
                with marked_timer("generate_async", {{}}):
                    await self._fit_generate()
                with marked_timer("update_actor", {{}}):
                    pass

    async def _fit_generate(self):
        with marked_timer("gen", {{}}):
            pass
"""
DRIVING = """
import asyncio
from grpo_doctor_probes import phase
from {module} import {name}

asyncio.run({name}().fit())
with phase("afterwards"):
    pass
"""
BASE = "verl.trainer.ppo.v1.trainer_base"
SEPARATE = f"from {BASE} import PPOTrainer\nclass PPOTrainerSeparateAsync(PPOTrainer): ...\n"
TRAINERS = {
    "PPOTrainerSeparateAsync": "verl.trainer.ppo.v1.trainer_separate_async",
    "OneStepOffRayTrainer": "verl.experimental.one_step_off_policy.ray_trainer",
    "FullyAsyncTrainer": f"{FULLY_ASYNC}.fully_async_trainer",
}


def drive(folder: Path, name: str) -> subprocess.CompletedProcess[str]:
    module = TRAINERS[name]
    modules = {"verl.utils.debug": PROFILER, module: STEPPING.format(name=name)}
    if name == "PPOTrainerSeparateAsync":
        modules |= {module: SEPARATE, BASE: STEPPING.format(name="PPOTrainer")}
    return run_job(folder, DRIVING.format(module=module, name=name), modules=modules)


@pytest.mark.parametrize("name", TRAINERS)
def test_what_such_a_trainer_calls_generating_is_a_wait(tmp_path: Path, name: str) -> None:
    result = drive(tmp_path, name)
    assert (result.returncode, result.stderr) == (0, "")
    trace = recorded(tmp_path)
    assert step_numbers(trace) == [1, 2]
    assert span_names(trace) == [*["rollout/wait", "train"] * 2, "afterwards"]
    assert [p.role for p in trace.processes] == ["driver"]


@pytest.mark.parametrize("name", TRAINERS)
def test_the_last_step_of_a_coroutine_ends_with_it(tmp_path: Path, name: str) -> None:
    drive(tmp_path, name)
    trace = recorded(tmp_path)
    spans = trace.spans
    afterwards = spans.name == trace.names.index("afterwards")
    assert spans.end_ns[spans.kind == Kind.STEP].max() <= spans.start_ns[afterwards][0]


ROLLOUTER = """
import time

class FullyAsyncAgentLoopManager:
    async def generate_sequences_single(self, prompts):
        return prompts

class FullyAsyncRollouter:
    def __init__(self):
        self.paused, self.staleness_samples, self.max_required_samples = False, 0, 8
        self.step_start_time = self.idle_start_time = time.time()

    async def init_workers(self): ...

    async def reset_staleness(self):
        self.paused, self.step_start_time = False, time.time()
        return {}
"""
ROLLING_OUT = """
import asyncio, time
from verl.experimental.fully_async_policy.fully_async_rollouter import *

async def main():
    rollouter = FullyAsyncRollouter()
    await rollouter.init_workers()
    time.sleep(0.5)
    await FullyAsyncAgentLoopManager().generate_sequences_single([1])
    for stale, idle_s in ((8, 0.4), (0, 0.2), (0, 0.0)):
        rollouter.paused, rollouter.staleness_samples = idle_s > 0, stale
        rollouter.step_start_time, rollouter.idle_start_time = 0.0, time.time() - idle_s
        assert await rollouter.reset_staleness() == {}

asyncio.run(main())
"""


def test_a_rollouter_says_how_long_it_had_nothing_to_do_and_why(tmp_path: Path) -> None:
    module = f"{FULLY_ASYNC}.fully_async_rollouter"
    result = run_job(tmp_path, ROLLING_OUT, modules={module: ROLLOUTER})
    assert (result.returncode, result.stderr) == (0, "")
    trace = recorded(tmp_path)
    assert [p.role for p in trace.processes] == ["rollouter"]
    spans = trace.spans
    lengths_s = (spans.end_ns - spans.start_ns) / 1e9
    by_name = {
        name: lengths_s[spans.name == trace.names.index(name)].tolist()
        for name in ("rollout/queue", "rollout/queue/staleness", "rollout/queue/full")
    }
    (stale_s,), (full_s,) = by_name["rollout/queue/staleness"], by_name["rollout/queue/full"]
    assert (stale_s > 0.4, full_s > 0.2) == (True, True)
    assert by_name["rollout/queue"] == [stale_s, full_s]
    assert {"init", "rollout/generate"} <= set(span_names(trace))
