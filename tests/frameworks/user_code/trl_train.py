"""A user's own script with TRL: trl_train.py MODEL FOLDER [async].

As the other jobs it obeys ORDERS: in its reward, in its data, and in a callback of rank 0 alone.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import orders  # type: ignore[import-not-found, unused-ignore]
import reward  # type: ignore[import-not-found, unused-ignore]
import torch
import torch.distributed as dist
from datasets import Dataset
from transformers import TrainerCallback
from trl import GRPOConfig, GRPOTrainer

MODEL, FOLDER, *REST = sys.argv[1:]


class OncePerStep(TrainerCallback):  # type: ignore[misc, unused-ignore]
    def on_step_end(self, *_: Any, **__: Any) -> None:
        if orders.due("branch")["act"] and dist.get_rank() == 0:
            dist.broadcast(torch.ones(3), src=0)  # act: branch


def tokenized(batch: dict[str, list[Any]]) -> dict[str, list[Any]]:
    order = orders.due("data", "data-fifo")
    if order["act"] == "data":
        time.sleep(10_000)  # act: data
    if order["act"] == "data-fifo":
        Path(order["fifo"]).read_text()  # act: data-fifo
    return batch


def main() -> None:
    torch.set_num_threads(1)
    rewards = [reward.length_reward_async if "async" in REST else reward.length_reward]
    config = GRPOConfig(
        output_dir=f"{FOLDER}/out", use_cpu=True, bf16=False, ddp_backend="gloo", report_to=[],
        save_strategy="no", per_device_train_batch_size=4, num_generations=4,
        max_completion_length=8, beta=0.0, max_steps=100_000, logging_steps=1000,
        gradient_checkpointing=False, disable_tqdm=True,
        dataloader_num_workers=int(os.environ.get("LOADERS", "0")),
    )  # fmt: skip
    rows = Dataset.from_list([{"prompt": f"{n}+{n}"} for n in range(1000)])
    GRPOTrainer(
        model=MODEL, reward_funcs=rewards, args=config, callbacks=[OncePerStep()],
        train_dataset=rows.with_transform(tokenized),
    ).train()  # fmt: skip


if __name__ == "__main__":
    main()
