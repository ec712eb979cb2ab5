"""TRL's GRPOTrainer with tools, in its shape since 1.8: all samples of a rank turn by turn."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpo_doctor_reports.schema.trajectories import Trajectories
from tests.unit.probes.hooks.hooked_job import recorded, run_job

TRAINER = """
import time
from types import SimpleNamespace

def gather(values):
    time.sleep(0.02)
    return values

class GRPOTrainer:
    def __init__(self, tools=(), environments=(), rollout_func=None, engine=None):
        self.tools, self.environments, self.rollout_func = list(tools), environments, rollout_func
        self._environment_pool, self.vllm_generation = {None: environments}, engine
        self.model, self.state = SimpleNamespace(training=True), SimpleNamespace(global_step=4)

    def _generate_and_score_completions(self, inputs):
        own = [[getattr(each, "move")] for each in self.environments] or [[] for _ in inputs]
        self._sync_tool_dicts = [
            {tool.__name__: tool for tool in [*self.tools, *more]} for more in own
        ]
        self._async_tool_dicts = [{} for _ in inputs]
        for environment in self.environments:
            environment.reset()
        if self.rollout_func:
            self.rollout_func(inputs, self)
        else:
            ids, said = [[n] for n in range(len(inputs))], [[7] for _ in inputs]
            self._generate_single_turn(ids, None, {})
            self._tool_call_loop(inputs, ids, said, inputs, None, None, {})
        return self._calculate_rewards(inputs, inputs, inputs, inputs)

    def _generate_single_turn(self, prompt_ids, images, fields):
        self.vllm_generation.sync_weights()
        return self.vllm_generation.generate(prompt_ids)

    def _tool_call_loop(self, prompts, prompt_ids, completion_ids, completions, *more):
        for sample, names in enumerate(prompts):
            for name in names:
                tools = self._sync_tool_dicts[sample]
                try:
                    tools[name]() if name in tools else self._async_tool_dicts[sample][name]()
                except Exception:
                    pass
        going_on = [n for n, names in enumerate(prompts) if names and "long" not in names]
        self._generate_single_turn([prompt_ids[n] + [7, 9] for n in going_on], None, {})

    def _calculate_rewards(self, inputs, prompts, completions, completion_ids):
        time.sleep(0.03)
        return gather(len(inputs))
"""
ENGINE = """
import time

class VLLMGeneration:
    def sync_weights(self):
        time.sleep(0.01)

    def generate(self, prompts):
        time.sleep(0.02)
"""
MODULES = {"trl.trainer.grpo_trainer": TRAINER, "trl.generation.vllm_generation": ENGINE}
IMPORTS = """
import time
from trl.generation.vllm_generation import VLLMGeneration
from trl.trainer.grpo_trainer import GRPOTrainer
"""
TOOLS = """
def look_up():
    time.sleep(0.03)

def browse():
    raise TimeoutError

def long(): ...

trainer = GRPOTrainer([look_up, browse, long], engine=VLLMGeneration())
inputs = [["look_up", "browse"], [], ["long", "made up"], ["look_up"]]
print(trainer._generate_and_score_completions(inputs))
trainer.model.training = False
trainer._generate_and_score_completions(inputs)
print(type(trainer._sync_tool_dicts).__name__)
"""
ENVIRONMENT = """
class Maze:
    def reset(self):
        time.sleep(0.02)

    def move(self):
        time.sleep(0.01)

trainer = GRPOTrainer(environments=[Maze(), Maze()], engine=VLLMGeneration())
trainer._generate_and_score_completions([["move"], []])
"""
OWN = """
def rollout(prompts, trainer):
    time.sleep(0.02)

trainer = GRPOTrainer(rollout_func=rollout, engine=VLLMGeneration())
trainer._generate_and_score_completions([[], []])
trainer.rollout_func = lambda *_: 1 / 0
try:
    trainer._generate_and_score_completions([[], []])
except ZeroDivisionError:
    print("raised")
"""
NONE = """
trainer = GRPOTrainer(engine=VLLMGeneration())
trainer._generate_and_score_completions([[], []])
"""


BEFORE_0_29 = """
trainer = GRPOTrainer([max], engine=VLLMGeneration())
del trainer.environments
try:
    trainer._generate_and_score_completions([[], []])
except AttributeError:
    print("raised")
"""


def ran(folder: Path, program: str) -> tuple[str, Trajectories | None]:
    result = run_job(folder, IMPORTS + program, modules=MODULES)
    assert (result.returncode, result.stderr) == (0, "")
    trace = recorded(folder)
    assert not any("internal errors" in note for note in trace.loss.notes)
    return result.stdout, trace.trajectories


def test_a_sample_calls_its_tools_and_waits_for_those_of_the_others(tmp_path: Path) -> None:
    said, found = ran(tmp_path, TOOLS)
    assert said == "4\nlist\n"
    assert found is not None
    assert found.outcomes == {"trained": 4}
    calls = {tool.name: (tool.calls, tool.errors, tool.time_outs) for tool in found.tools}
    assert calls == {"look_up": (2, 0, 0), "browse": (1, 0, 1), "long": (1, 0, 0)}
    samples = [one for one in found.shown if one.why == "slowest"]
    caller, silent, too_long, last = sorted(samples, key=lambda one: one.start_s)
    assert [one.requests for one in (caller, silent, too_long, last)] == [2, 1, 1, 2]
    assert caller.states["tool"] > 0.029
    assert silent.states["queue"] > 0.109  # two calls, a turn of others, weights twice, `gather`
    for one in found.shown:
        assert one.states["reward"] > 0.029
        assert one.states["generate"] > 0.019
        assert (one.numbers["version"], one.staleness) == (4, None)


def test_an_environment_is_reset_before_the_first_turn(tmp_path: Path) -> None:
    _, found = ran(tmp_path, ENVIRONMENT)
    assert found is not None
    calls = {tool.name: tool.calls for tool in found.tools}
    assert calls == {"Maze.reset": 2, "Maze.move": 1}
    assert all(one.states["tool"] > 0.019 for one in found.shown)
    assert all(one.states["queue"] > 0.039 for one in found.shown)


def test_what_a_users_own_rollout_does_is_not_known(tmp_path: Path) -> None:
    said, found = ran(tmp_path, OWN)
    assert said == "raised\n"
    assert found is not None
    assert found.outcomes == {"failed": 2, "trained": 2}
    trained = [one for one in found.shown if one.outcome == "trained"]
    assert all(one.states["other"] > 0.019 for one in trained)


@pytest.mark.parametrize("program", [NONE, BEFORE_0_29])
def test_one_turn_and_older_versions_have_no_trajectories(program: str, tmp_path: Path) -> None:
    assert ran(tmp_path, program)[1] is None
