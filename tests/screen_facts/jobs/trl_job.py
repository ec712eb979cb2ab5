"""A user's script with TRL, settings in the code: trl_job.py MODEL FOLDER STEPS [lora] [raise]."""

from __future__ import annotations

import itertools
import sys
import time
from typing import Any

import torch
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

MODEL, FOLDER, STEPS, *WORDS = sys.argv[1:]
_calls = itertools.count(1)


def score(completions: list[Any], **_: Any) -> list[float]:
    time.sleep(0.1)
    if "raise" in WORDS and next(_calls) == 3:
        raise RuntimeError("the judge has no answer")
    return [float(len(set(str(completion)))) for completion in completions]


def main() -> None:
    torch.set_num_threads(1)
    adapters = None
    if "lora" in WORDS:
        from peft import LoraConfig

        adapters = LoraConfig(r=4, target_modules=["q_proj", "v_proj"])
    config = GRPOConfig(
        output_dir=f"{FOLDER}/out", use_cpu=True, bf16=False, report_to=[], save_strategy="no",
        per_device_train_batch_size=4, num_generations=4, max_completion_length=8,
        max_steps=int(STEPS), logging_steps=1, gradient_checkpointing=False, disable_tqdm=True,
    )  # fmt: skip
    rows = Dataset.from_list([{"prompt": f"{n}+{n}"} for n in range(1000)])
    GRPOTrainer(
        model=MODEL, reward_funcs=score, args=config, train_dataset=rows, peft_config=adapters
    ).train()


if __name__ == "__main__":
    main()
