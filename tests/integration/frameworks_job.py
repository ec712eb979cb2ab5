"""A user's own GRPO script with TRL, of which one rank stops getting on; started by a launcher.

train_grpo.py FAULT MODEL FOLDER    each rank touches FOLDER/RANK when the fault is due
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from datasets import Dataset
from transformers import TrainerCallback
from trl import GRPOConfig, GRPOTrainer

FAULT, MODEL, FOLDER = sys.argv[1:4]
RANK = int(os.environ["RANK"])
GUILTY = 1
DUE = 12  # in which call of the reward, or a loader's in which batch


@dataclass
class Clock:
    """Counts what is done, and says once that the fault is due."""

    calls: int = 0

    def due(self, fault: str) -> bool:
        now = self.calls == DUE
        if now and fault == FAULT:
            (Path(FOLDER) / str(RANK)).touch()
        return now and fault == FAULT and RANK == GUILTY


rewards, rows = Clock(), Clock()


def ask_judge(text: str) -> bytes:
    server = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{server.getsockname()[1]}/judge"
    answer: bytes = urllib.request.urlopen(url, data=text.encode()).read()
    return answer


def length_reward(completions: list[str], **_: Any) -> list[float]:
    rewards.calls += 1
    if rewards.due("judge"):
        ask_judge(completions[0])
    if rewards.due("stopped"):
        os.kill(os.getpid(), signal.SIGSTOP)
    return [float(len(set(text))) for text in completions]


class OncePerStep(TrainerCallback):  # type: ignore[misc]
    def on_step_end(self, *_: Any, **__: Any) -> None:
        if rewards.due("branch"):
            dist.broadcast(torch.ones(3), src=GUILTY)


def tokenized_slowly(batch: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """What a loader's worker does with each batch of rows."""
    rows.calls += 1
    if rows.due("loader"):
        time.sleep(10_000)
    return batch


def main() -> None:
    torch.set_num_threads(1)
    config = GRPOConfig(
        output_dir=f"{FOLDER}/out", use_cpu=True, bf16=False, report_to=[], save_strategy="no",
        per_device_train_batch_size=4, num_generations=4, max_completion_length=4, beta=0.0,
        max_steps=100_000, logging_steps=1000, gradient_checkpointing=False, disable_tqdm=True,
        dataloader_num_workers=1 if FAULT == "loader" else 0,
    )  # fmt: skip
    prompts = [{"prompt": f"{n}+{n}"} for n in range(1000)]
    trainer = GRPOTrainer(
        model=MODEL, reward_funcs=[length_reward], args=config, callbacks=[OncePerStep()],
        train_dataset=Dataset.from_list(prompts).with_transform(tokenized_slowly),
    )  # fmt: skip
    trainer.train()


if __name__ == "__main__":
    main()
