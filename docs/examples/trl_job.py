"""A small GRPO job of TRL with one fault on rank 1: what docs/comparison.md shows to other tools.

torchrun --nproc_per_node 2 docs/examples/trl_job.py --fault slow
torchrun --nproc_per_node 2 docs/examples/trl_job.py --fault stuck
torchrun --nproc_per_node 2 docs/examples/trl_job.py --fault slow --profile traces

A random model of a few thousand weights, made on the spot; no GPU, no downloads.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
import time
from typing import Any

import torch
from datasets import Dataset
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    TrainerCallback,
)
from trl import GRPOConfig, GRPOTrainer

SLOW_S = 0.4
STUCK_AT_CALL = 10
END = "<end>"


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """One token per byte, and one that ends a text."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {character: number for number, character in enumerate([END, *alphabet])}
    tokenizer = Tokenizer(models.BPE(vocabulary, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=END, pad_token=END, padding_side="left"
    )


def tiny_model(tokens: int) -> Qwen2ForCausalLM:
    """Two layers, and weights by chance that are the same on every rank."""
    torch.manual_seed(1)
    return Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=tokens, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=512,
            bos_token_id=None, eos_token_id=0, pad_token_id=0,
        )
    )  # fmt: skip


def run_in_sandbox(completion: str) -> None:
    """A program that never ends, waited for without a time limit."""
    subprocess.run(["sleep", "600"], input=completion.encode(), check=True)


class Reward:
    """Counts distinct characters; on rank 1 slowly, or in its tenth call never."""

    __name__ = "distinct"

    def __init__(self, fault: str) -> None:
        self.fault = fault if os.environ.get("RANK") == "1" else "none"
        self.calls = 0

    def __call__(self, completions: list[str], **_columns: Any) -> list[float]:
        """One number per completion."""
        self.calls += 1
        if self.fault == "slow":
            time.sleep(SLOW_S)
        if self.fault == "stuck" and self.calls == STUCK_AT_CALL:
            run_in_sandbox(completions[0])
        return [float(len(set(text))) for text in completions]


class ProfilerStep(TrainerCallback):  # type: ignore[misc]
    """Tells the PyTorch profiler where a step ends."""

    def __init__(self, profiler: torch.profiler.profile) -> None:
        self.profiler = profiler

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """Called by the trainer."""
        self.profiler.step()


def main() -> None:
    """Trains on the CPU."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fault", choices=["none", "slow", "stuck"], default="none")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument(
        "--profile", metavar="FOLDER", help="for TensorBoard: scalars, traces of 4 steps"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.profile:
        os.environ["TENSORBOARD_LOGGING_DIR"] = f"{options.profile}/scalars"
    tokenizer = tiny_tokenizer()
    with tempfile.TemporaryDirectory() as output:
        config = GRPOConfig(
            output_dir=output, use_cpu=True, bf16=False, save_strategy="no",
            report_to=["tensorboard"] if options.profile else [],
            per_device_train_batch_size=4, num_generations=4, max_completion_length=32,
            max_steps=options.steps, logging_steps=1, disable_tqdm=True,
        )  # fmt: skip
        trainer = GRPOTrainer(
            model=tiny_model(len(tokenizer)), processing_class=tokenizer, args=config,
            reward_funcs=[Reward(options.fault)],
            train_dataset=Dataset.from_list([{"prompt": f"{n}+{n}="} for n in range(1000)]),
        )  # fmt: skip
        if options.profile is None:
            trainer.train()
            return
        with torch.profiler.profile(
            schedule=torch.profiler.schedule(wait=8, warmup=2, active=4, repeat=1),
            on_trace_ready=torch.profiler.tensorboard_trace_handler(options.profile),
        ) as profiler:
            trainer.add_callback(ProfilerStep(profiler))
            trainer.train()


if __name__ == "__main__":
    main()
