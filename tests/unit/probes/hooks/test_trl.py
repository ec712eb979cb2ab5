"""TRL's trainers in their own shape: GRPO's phases within one step, and the asynchronous one's."""

from __future__ import annotations

from pathlib import Path

from grpo_doctor.trace.model import Kind
from tests.unit.probes.hooks.hooked_job import TRAINER, recorded, run_job, span_names

GRPO = """
from transformers.trainer import Trainer

class GRPOTrainer(Trainer):
    def __init__(self, reward_funcs):
        super().__init__(steps=2, reward_funcs=reward_funcs)

    def training_step(self):
        self._prepare_inputs()
        return super().training_step()

    def _prepare_inputs(self):
        self._generate_and_score_completions()

    def _generate_and_score_completions(self):
        self._tokenize_prompts()
        self._generate()
        self._get_per_token_logps_and_entropies(self.state)
        self._calculate_rewards()

    def _tokenize_prompts(self): ...
    def _generate(self): ...
    def _get_per_token_logps_and_entropies(self, model): ...

    def _calculate_rewards(self):
        return [reward() for reward in self.reward_funcs]

    def compute_loss(self):
        self._get_per_token_logps_and_entropies(self.state)
"""
JOB = """
from trl.trainer.grpo_trainer import GRPOTrainer

class Judge:
    def __call__(self):
        return 1.0

def accuracy():
    return 0.0

GRPOTrainer([accuracy, Judge()]).train()
"""


def test_a_step_has_the_phases_of_grpo_in_their_order(tmp_path: Path) -> None:
    modules = {"transformers.trainer": TRAINER, "trl.trainer.grpo_trainer": GRPO}
    result = run_job(tmp_path, JOB, modules=modules)
    assert result.returncode == 0, result.stderr
    trace = recorded(tmp_path)
    names = span_names(trace)
    assert names[-10:] == [  # of the second step
        "dataload", "rollout", "rollout/encode", "rollout/generate", "logprob/old",
        "reward", "reward/accuracy", "reward/Judge", "train", "train/loss",
    ]  # fmt: skip
    assert trace.run.framework == "trl"


ASYNC_TRAINER = """
import time
from transformers.trainer import Trainer

class AsyncGRPOTrainer(Trainer):
    def get_batch_samples(self, iterator, count):
        time.sleep(0.01)
        return super().get_batch_samples(iterator, count)

    def training_step(self):
        super().training_step()
        self._sync_weight()

    def compute_loss(self): ...
    def _sync_weight(self): ...
"""
ASYNC_LOOP = """
import asyncio

class _AsyncRolloutLoop:
    def __init__(self, reward_funcs, tools):
        self.reward_funcs, self.tools = reward_funcs, {tool.__name__: tool for tool in tools}

    def run(self):
        asyncio.run(self._run_loops())

    async def _run_loops(self):
        await asyncio.gather(*(self._generate_one_turn() for _ in range(4)))
        await self._execute_tool_calls([], self.tools)
        await self._score_group()
        self._push_metrics({"rollout/score_s": 0.1})
        self._push_metrics({"rollout/backpressure_s": 0.005})
        self._push_metrics({"rollout/score_block_s": 0.003})

    def _push_metrics(self, values): ...

    async def _generate_one_turn(self):
        await asyncio.sleep(0.02)

    async def _execute_tool_calls(self, calls, tools):
        await asyncio.gather(asyncio.to_thread(tools["search"]), tools["ask"](), tools["ask"]())

    async def _score_group(self):
        await asyncio.to_thread(self.reward_funcs[0])
"""
ASYNC_JOB = """
import asyncio
import multiprocessing
import os

def child():
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # as TRL does: the loop has no GPU
    from trl.experimental.async_grpo.async_rollout_worker import _AsyncRolloutLoop
    _AsyncRolloutLoop([accuracy], [search, ask]).run()

def accuracy(): ...
def search(): ...
async def ask():
    await asyncio.sleep(0.01)

if __name__ == "__main__":
    from trl.experimental.async_grpo.async_grpo_trainer import AsyncGRPOTrainer
    loop = multiprocessing.get_context("spawn").Process(target=child)
    loop.start()
    AsyncGRPOTrainer().train()
    loop.join()
"""


def test_ranks_of_an_asynchronous_run_wait_for_the_rollout_and_load_no_data(tmp_path: Path) -> None:
    package = "trl.experimental.async_grpo"
    result = run_job(
        tmp_path, ASYNC_JOB,
        modules={
            "transformers.trainer": TRAINER,
            f"{package}.async_grpo_trainer": ASYNC_TRAINER,
            f"{package}.async_rollout_worker": ASYNC_LOOP,
        },
        environment={
            "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "CUDA_VISIBLE_DEVICES": "0,1"
        },
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    trace = recorded(tmp_path)
    names = span_names(trace)
    assert "dataload" not in names
    assert {"rollout/wait", "train", "sync", "rollout/tools", "reward"} <= set(names)
    assert [p.role for p in trace.processes] == ["trainer", "rollout"]
    spans = trace.spans
    generating = (spans.process == 1) & (spans.name == trace.names.index("rollout/generate"))
    assert (generating & (spans.kind == Kind.SPAN)).sum() == 1  # four turns side by side
    assert trace.ranks == (0,)
    for name, length_ns in (("rollout/queue", 5_000_000), ("reward/queue", 3_000_000)):
        waiting = (spans.process == 1) & (spans.name == trace.names.index(name))
        assert (spans.end_ns - spans.start_ns)[waiting].tolist() == [length_ns]
    of_loop = [trace.names[name] for name in spans.name[spans.process == 1]]
    assert {"rollout/tools/search", "reward/accuracy"} <= set(of_loop)
    assert of_loop.count("rollout/tools/ask") == 1  # two calls side by side
