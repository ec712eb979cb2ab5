"""ms-swift's real Ray driver of GRPO on Megatron, without Ray: its own order of calls.

Real: `train`, `_train_loop`, the worker group's dispatch, the manager of weights, expansion,
scoring, advantages, how log-probs come back to their batches. Stand-ins: Ray (an actor's answer is
there at once), the worker and the engine, encoding and collating; they sleep as TIMES says (JSON,
seconds by name).
"""

# mypy: disable-error-code="import-not-found, untyped-decorator"

from __future__ import annotations

import json
import os
import sys
import time
import types
from typing import Any
from unittest.mock import MagicMock

TIMES: dict[str, float] = json.loads(os.environ["TIMES"])
Namespace = types.SimpleNamespace
PROMPTS, GENERATIONS, TOKENS, STEPS = 2, 4, 3, 3

ray = MagicMock(name="ray")
ray.get = lambda answers, **_: answers
for name in (
    *("ray", "ray.runtime_env", "ray.util", "ray.util.scheduling_strategies"),
    *("ray.util.collective", "ray.exceptions", "zmq", "zmq.asyncio"),
):
    sys.modules[name] = ray

import torch  # noqa: E402
from swift.infer_engine.protocol import (  # noqa: E402
    ChatCompletionResponse,
    ChatCompletionResponseChoice,
    ChatMessage,
    UsageInfo,
)
from swift.ray.megatron import grpo_trainer, worker_group  # noqa: E402
from swift.rlhf_trainers import utils  # noqa: E402


def spend(part: str) -> None:
    time.sleep(TIMES[part])


class Batch(Namespace):
    """What the collated micro-batch has of the job's own."""


def collate(samples: list[Any], *_: Any, **__: Any) -> tuple[dict[str, Any], Any]:
    shape = (len(samples), TOKENS)
    batch = Batch(
        completion_mask=torch.ones(shape), old_per_token_logps=None, ref_per_token_logps=None,
        teacher_per_token_logps=None, advantages=None,
    )  # fmt: skip
    return {"input_ids": torch.zeros(shape)}, batch


class Worker:
    """What a Megatron worker offers; its results come at once."""

    iteration = 0

    @worker_group.dispatch_collect(dispatch="dp", collect="dp_flat")
    def compute_logps(self, batches: list[Any]) -> list[Any]:
        spend("logprob")
        return [{"per_token_logps": row} for b in batches for row in b["input_ids"]]

    @worker_group.dispatch_collect(dispatch="dp", collect="dp_flat")
    def compute_ref_logps(self, batches: list[Any]) -> list[Any]:
        spend("logprob")
        return [{"ref_per_token_logps": row} for b in batches for row in b["input_ids"]]

    @worker_group.dispatch_collect(dispatch="dp", collect="all")
    def train_step(self, batches: list[Any], extra_metrics: Any = None) -> Any:
        spend("train")
        self.iteration += 1
        return {"iteration": self.iteration}

    @worker_group.dispatch_collect(collect="first")
    def setup(self, override: dict[str, Any]) -> Any:
        return {"train_iters": STEPS, "iteration": 0}

    @worker_group.dispatch_collect()
    def update_weights(self, **_: Any) -> None:
        spend("sync")

    @worker_group.dispatch_collect()
    def nothing(self, *_: Any, **__: Any) -> None: ...

    merge_lora = unmerge_lora = offload_to_cpu = reload_to_gpu = nothing
    finalize_generation = finalize = nothing

    def get_parallel_info(self) -> dict[str, Any]:
        return {"dp_rank": 0, "is_collector": True, "dp_size": 1}


class Actor:
    """A handle of an actor that is in this process."""

    def __init__(self, worker: Any) -> None:
        self._worker = worker

    def __getattr__(self, name: str) -> Any:
        return Namespace(remote=getattr(self._worker, name))


def replica() -> Any:
    def generate(requests: list[Any], _: Any) -> list[Any]:
        spend("rollout")
        return [answer() for _ in requests]

    return Namespace(generate=generate, primary=None, mode=None)


def answer() -> Any:
    choice = ChatCompletionResponseChoice(
        index=0, message=ChatMessage(role="assistant", content="2"), finish_reason="stop",
        token_ids=[1] * TOKENS,
    )  # fmt: skip
    return ChatCompletionResponse(model="m", choices=[choice], usage=UsageInfo(1, TOKENS, 4))


class Length:
    def __call__(self, completions: list[Any], **_: Any) -> list[float]:
        spend("reward")
        return [float(number) for number in range(len(completions))]


class Trainer(grpo_trainer.GRPOTrainer):  # type: ignore[misc, unused-ignore]
    is_colocated_rollout = False

    def _get_request_config(self) -> Any:
        return None


def settings() -> Any:
    shared = {
        "num_generations": GENERATIONS, "advantage_estimator": "grpo", "scale_rewards": "group",
        "kl_in_reward": False, "teacher_model": None, "reward_funcs": [], "reward_weights": None,
        "truncation_strategy": "left", "use_gym_env": False, "vllm_enable_lora": False,
    }  # fmt: skip
    return Namespace(
        **shared, global_batch_size=PROMPTS * GENERATIONS, micro_batch_size=4, temperature=1.0,
        beta=0.1, train_iters=STEPS, tuner_type="lora", rlhf_type="grpo", loss_type="grpo",
        generation_batch_size=None, steps_per_generation=None, torch_dtype=torch.bfloat16,
    )  # fmt: skip


def load(rows: list[Any]) -> list[Any]:
    spend("dataload")
    return rows


def main() -> None:
    utils.collate_to_grpo_micro_batch = collate
    grpo_trainer.encode_sample = lambda *_: {"input_ids": [1]}
    grpo_trainer.resolve_reward_funcs = lambda *_, **__: ([Length()], ["Length"])
    group = worker_group.WorkerGroup("train", [Actor(Worker())])
    group.build_dispatch_info(Worker)
    trainer = Trainer({"train": group}, [replica()], weight_sync_mode="naive")
    arguments = settings()
    chat = [{"role": "user", "content": "1+1"}]
    trainer.set_data_info(
        {
            "_driver_args": arguments, "template": Namespace(padding_free=False),
            "train_dataset": [{"messages": list(chat)} for _ in range(8)], "data_collator": load,
            "global_batch_size": arguments.global_batch_size, "num_generations": GENERATIONS,
            "micro_batch_size": 4, "train_iters": STEPS, "num_train_epochs": None,
        }
    )  # fmt: skip
    trainer.train()


main()
