"""A GRPO loop as a user writes it. Device work is queued; the host stops where it reads a value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist

MICRO_BATCHES = 3


@dataclass
class Trainer:
    """State of a rank. `happens(phase)` is where a fault comes in."""

    rank: int
    world_size: int
    device: Any
    data_parallel: Any
    tensor_parallel: Any
    weight_sync: Any
    happens: Callable[[str, Trainer], None]
    kernel_s: float = 0.003
    step: int = 0
    grads: torch.Tensor = field(default_factory=lambda: torch.zeros(4))


def rollout(trainer: Trainer) -> None:
    tokens = trainer.device.value()
    for _ in range(3):
        trainer.device.launch(trainer.kernel_s)
        tokens.tolist()
    trainer.happens("rollout", trainer)


def compute_rewards(trainer: Trainer) -> None:
    sum(len(str(number)) for number in range(500))
    trainer.happens("reward", trainer)
    rewards = trainer.device.value()
    dist.all_reduce(trainer.grads, group=trainer.data_parallel)
    rewards.item()


def compute_logprobs(trainer: Trainer) -> None:
    for _ in range(2):
        trainer.device.launch(trainer.kernel_s)
        dist.all_reduce(trainer.grads, group=trainer.tensor_parallel)
    trainer.happens("logprob", trainer)


def compute_loss(trainer: Trainer) -> None:
    loss = trainer.device.value()
    for _ in range(MICRO_BATCHES):
        trainer.device.launch(trainer.kernel_s)
        dist.all_reduce(trainer.grads, group=trainer.tensor_parallel)
        dist.all_reduce(trainer.grads, group=trainer.data_parallel, async_op=True)
    trainer.happens("update", trainer)
    loss.item()


def sync_weights(trainer: Trainer) -> None:
    dist.broadcast(trainer.grads, src=0, group=trainer.weight_sync)
    torch.cuda.synchronize()
    trainer.happens("sync", trainer)
    dist.barrier()


def train_step(trainer: Trainer) -> None:
    rollout(trainer)
    compute_rewards(trainer)
    compute_logprobs(trainer)
    compute_loss(trainer)
    sync_weights(trainer)


def train(trainer: Trainer, steps: int, stepped: Callable[[int], None]) -> None:
    for step in range(steps):
        trainer.step = step
        train_step(trainer)
        stepped(step)


def train_uncounted(trainer: Trainer, stepped: Callable[[int], None]) -> None:
    """The same, and no variable of any function ever changes."""
    while True:
        train_step(trainer)
        stepped(trainer.step)
        trainer.step += 1
