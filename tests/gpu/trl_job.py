"""A user's script: TRL's GRPOTrainer on one GPU. `python -m tests.gpu.trl_job MODEL FOLDER STEPS`

With SYNCHRONIZED=1 in the environment every span of the hooks begins and ends with nothing left on
the device, so that the host's clock tells the truth. The last line is the losses.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer

MODEL, FOLDER, STEPS = sys.argv[1:]


def digits(completions: list[str], **_: Any) -> list[float]:
    """A reward of no cost."""
    return [sum(letter.isdigit() for letter in text) / max(1, len(text)) for text in completions]


def synchronize_spans() -> None:
    """Waits for the device at both ends of each span of the hooks."""
    from grpo_doctor_probes.hooks.spans import HookedSpan

    enter, leave = HookedSpan.__enter__, HookedSpan.__exit__

    def waited_enter(span: HookedSpan) -> None:
        torch.cuda.synchronize()
        enter(span)

    def waited_leave(span: HookedSpan, *raised: Any) -> None:
        torch.cuda.synchronize()
        leave(span, *raised)

    HookedSpan.__enter__, HookedSpan.__exit__ = waited_enter, waited_leave  # type: ignore[method-assign]


def main() -> None:
    """Trains."""
    if os.environ.get("SYNCHRONIZED") == "1":
        synchronize_spans()
    on_gpu = torch.cuda.is_available()
    filler = "some words before the answer " * 20
    trainer = GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(MODEL, dtype="bfloat16"),
        processing_class=AutoTokenizer.from_pretrained(MODEL),
        reward_funcs=[digits],
        args=GRPOConfig(
            output_dir=FOLDER, bf16=on_gpu, use_cpu=not on_gpu, report_to=[], save_strategy="no",
            disable_tqdm=True,
            per_device_train_batch_size=8, gradient_accumulation_steps=4, num_generations=8,
            max_completion_length=64, beta=0.04, num_iterations=2, max_steps=int(STEPS),
            logging_steps=1, gradient_checkpointing=False, learning_rate=1e-6,
        ),
        train_dataset=Dataset.from_list([{"prompt": f"{n} + {n}? {filler}"} for n in range(256)]),
    )  # fmt: skip
    trainer.train()
    losses = [row["loss"] for row in trainer.state.log_history if "loss" in row]
    sys.stdout.write(f"losses {json.dumps(losses)}\n")


if __name__ == "__main__":
    main()
