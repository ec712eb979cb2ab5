"""verl's trainers beside which a rollout of its own runs, in their shape of 0.8 and 0.9."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpo_doctor.trace.model import Kind
from tests.unit.probes.hooks.hooked_job import recorded, run_job, span_names, step_numbers

PROFILER = """
from contextlib import contextmanager

@contextmanager
def marked_timer(name, timing_raw, color=None):
    yield

simple_timer = marked_timer
"""
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


@pytest.mark.parametrize("name", TRAINERS)
def test_such_a_trainer_waits_for_samples_until_its_coroutine_ends(
    tmp_path: Path, name: str
) -> None:
    module = TRAINERS[name]
    modules = {"verl.utils.debug": PROFILER, module: STEPPING.format(name=name)}
    if name == "PPOTrainerSeparateAsync":
        modules |= {module: SEPARATE, BASE: STEPPING.format(name="PPOTrainer")}
    result = run_job(tmp_path, DRIVING.format(module=module, name=name), modules=modules)
    assert (result.returncode, result.stderr) == (0, "")
    trace = recorded(tmp_path)
    assert step_numbers(trace) == [1, 2]
    assert span_names(trace) == [*["rollout/wait", "train"] * 2, "afterwards"]
    assert [p.role for p in trace.processes] == ["driver"]
    spans = trace.spans
    afterwards = spans.name == trace.names.index("afterwards")
    assert spans.end_ns[spans.kind == Kind.STEP].max() <= spans.start_ns[afterwards][0]
