"""A user's script with TRL's GRPOTrainer that calls tools: MODEL FOLDER TIMES WAY.

As `trl_stopwatch.py`, with `tool`, `reset`, `engine` and `own` in TIMES. WAY is what answers come
by: `tools`, an `environment`, or a `rollout_func`. What the model says is scripted: every second
of a rank's four samples calls tools in its first turn.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
import torch.distributed as dist
import trl_stopwatch as own  # type: ignore[import-not-found, unused-ignore]
from datasets import Dataset
from transformers import Qwen2ForCausalLM
from trl import GRPOConfig, GRPOTrainer
from trl.chat_template_utils import qwen2_5_chat_template

SAMPLES, WAY = 4, sys.argv[4]
TOKENIZER = own.tokenizer()
TOKENIZER.chat_template = qwen2_5_chat_template  # TRL parses calls of tools by it


def look_up(word: str) -> str:
    """
    Says what a word means.

    Args:
        word: the word.

    Returns:
        What it means.
    """
    own.spend("tool")
    return f"{word} is 4"


async def browse(word: str) -> str:
    raise TimeoutError(word)


browse.__doc__ = look_up.__doc__


class Maze:
    def reset(self, **_: Any) -> str:
        own.spend("reset")
        return "You are in a maze."

    def move(self, word: str) -> str:
        return look_up(word)

    move.__doc__ = look_up.__doc__


def said(sample: int, is_first: bool) -> str:
    names = ["move"] if WAY == "environment" else ["look_up", "browse", "made_up"]
    call = '<tool_call>\n{"name": "%s", "arguments": {"word": "x"}}\n</tool_call>\n'
    calls = "".join(call % name for name in names)
    return f"{calls if is_first and sample % 2 == 0 else 'four'}<|end|>"


def generate(_: Any, input_ids: torch.Tensor, **__: Any) -> torch.Tensor:
    """In the place of the model's own."""
    own.spend("engine")
    texts = [said(sample, len(input_ids) == SAMPLES) for sample in range(len(input_ids))]
    answers = [torch.tensor(TOKENIZER(text).input_ids) for text in texts]
    padding = TOKENIZER.pad_token_id
    padded = torch.nn.utils.rnn.pad_sequence(answers, batch_first=True, padding_value=padding)
    return torch.cat([input_ids, padded], dim=1)


def rollout(prompts: list[Any], _: Any) -> dict[str, Any]:
    own.spend("own")
    ids = [[1, 2, 3] for _ in prompts]
    return {"prompt_ids": ids, "completion_ids": ids, "logprobs": None}


def length_reward(completions: list[Any], **_: Any) -> list[float]:
    own.spend("reward")
    return [float(len(str(each)) % 7) for each in completions]


def main() -> None:
    torch.set_num_threads(1)
    Qwen2ForCausalLM.generate = generate
    config = GRPOConfig(
        output_dir=f"{own.FOLDER}/out", use_cpu=True, bf16=False, ddp_backend="gloo", report_to=[],
        save_strategy="no", per_device_train_batch_size=SAMPLES, num_generations=4, max_steps=3,
        max_completion_length=512, gradient_checkpointing=False, disable_tqdm=True,
    )  # fmt: skip
    rows = [{"prompt": [{"role": "user", "content": f"{n}+{n}"}]} for n in range(100)]
    ways: dict[str, Any] = {
        "tools": {"tools": [look_up, browse]}, "environment": {"environment_factory": Maze},
        "rollout_func": {"rollout_func": rollout},
    }  # fmt: skip
    GRPOTrainer(
        model=own.MODEL, reward_funcs=[length_reward], args=config, processing_class=TOKENIZER,
        train_dataset=Dataset.from_list(rows), callbacks=own.callbacks(), **ways[WAY],
    ).train()  # fmt: skip
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
