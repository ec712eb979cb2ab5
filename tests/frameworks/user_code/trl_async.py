"""A user's script with TRL's AsyncGRPOTrainer: MODEL FOLDER URL TIMES. It times its own parts.

TIMES is JSON: seconds that each call of the reward, each call of the tool and each step of training
sleeps, by name (`reward`, `tool`, `train`; `token`: each token that a rank trains). When they began
and ended is appended to FOLDER/<name>.txt, in ns of Unix time, but for tokens. What the trainer
itself logs is in FOLDER/log.jsonl.
ASYNC_TOOL=1: the tool is a coroutine.
"""

from __future__ import annotations

import asyncio
import functools
import json
import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from datasets import Dataset
from transformers import PreTrainedTokenizerFast, TrainerCallback
from trl.chat_template_utils import qwen2_5_chat_template
from trl.experimental.async_grpo import (
    AsyncGRPOConfig,
    AsyncGRPOTrainer,
    async_grpo_trainer,
    packing,
)

MODEL, FOLDER, URL, TIMES = sys.argv[1:5]
SECONDS = {"reward": 0.0, "tool": 0.0, "train": 0.0, "token": 0.0, **json.loads(TIMES)}


def spend(part: str) -> None:
    """Sleeps as ordered, and notes when."""
    if not SECONDS[part]:
        return
    begun_ns = time.time_ns()
    time.sleep(SECONDS[part])
    with Path(FOLDER, f"{part}.txt").open("a") as file:
        file.write(f"{begun_ns} {time.time_ns()}\n")


def length_reward(completions: list[Any], **_: Any) -> list[float]:
    spend("reward")
    return [float(len(str(messages))) for messages in completions]


def look_up(word: str) -> str:
    """
    Says what a word means.

    Args:
        word: the word.

    Returns:
        What it means.
    """
    spend("tool")
    return f"{word} is 4"


if os.environ.get("ASYNC_TOOL"):
    _blocking = look_up

    @functools.wraps(look_up)
    async def look_up(word: str) -> str:
        return await asyncio.to_thread(_blocking, word)


class Journal(TrainerCallback):  # type: ignore[misc, unused-ignore]
    def on_log(self, _: Any, state: Any, __: Any, logs: dict[str, Any], **___: Any) -> None:
        if state.is_world_process_zero:
            with Path(FOLDER, "log.jsonl").open("a") as file:
                file.write(json.dumps({"step": state.global_step, **logs}) + "\n")


def attention_on_cpu(
    query: Any, key: Any, value: Any, query_ends: Any, key_ends: Any, *_: Any, **options: Any
) -> Any:
    """FlashAttention's function over sequences of different lengths, without its kernel."""
    parts = []
    for index in range(len(query_ends) - 1):
        q = query[query_ends[index] : query_ends[index + 1]].transpose(0, 1)
        k, v = (
            tensor[key_ends[index] : key_ends[index + 1]].transpose(0, 1) for tensor in (key, value)
        )
        mask = torch.ones(q.shape[1], k.shape[1], dtype=torch.bool).tril(k.shape[1] - q.shape[1])
        out = torch.nn.functional.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, scale=options["softmax_scale"], enable_gqa=True
        )
        parts.append(out.transpose(0, 1))
    return torch.cat(parts)


def tokenizer() -> PreTrainedTokenizerFast:
    fast_tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=f"{MODEL}/tokenizer.json", pad_token="<|pad|>", eos_token="<|end|>"
    )
    fast_tokenizer.chat_template = qwen2_5_chat_template  # TRL parses calls of tools by it
    return fast_tokenizer


class Trainer(AsyncGRPOTrainer):  # type: ignore[misc, unused-ignore]
    def compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        spend("train")
        time.sleep(SECONDS["token"] * int((inputs["token_index"] >= 0).sum()))
        return super().compute_loss(model, inputs, *args, **kwargs)


def main() -> None:
    torch.set_num_threads(1)
    packing._flash_attn = lambda: SimpleNamespace(flash_attn_varlen_func=attention_on_cpu)
    async_grpo_trainer.get_peak_flops_per_device = lambda *_: None  # asks CUDA which card it is
    options: dict[str, Any] = json.loads(os.environ.get("TRL_OPTIONS", "{}"))
    config = AsyncGRPOConfig(
        **{
            "output_dir": f"{FOLDER}/out", "use_cpu": True, "bf16": False, "ddp_backend": "gloo",
            "report_to": [], "save_strategy": "no", "per_device_train_batch_size": 4,
            "num_generations": 4, "max_completion_length": 64, "max_steps": 8, "logging_steps": 1,
            "gradient_checkpointing": False, "disable_tqdm": True, "seed": 3, "token_budget": -1,
            "max_inflight_tasks": 8, "queue_maxsize": 16, "vllm_server_base_url": URL, **options,
        }
    )  # fmt: skip
    rows = [{"prompt": [{"role": "user", "content": f"{n}+{n}"}]} for n in range(100)]
    Trainer(
        model=MODEL, reward_funcs=[length_reward], args=config, callbacks=[Journal()],
        train_dataset=Dataset.from_list(rows), processing_class=tokenizer(),
        tools=[look_up] if SECONDS["tool"] else None,
    ).train()  # fmt: skip
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
