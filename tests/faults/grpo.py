"""The job of the bench: the loop that a user of GRPO might have written, with tiny work.

Every phase has a small piece of real work and the collectives that such a phase has in practice.
Two process groups are in use, the world and the one for sending weights, as in trainers that serve
an inference engine.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

WIDTH = 96
TOKENS = 12
MICRO_BATCHES = 2


class BadBatch(Exception):  # noqa: N818 - it says what happened
    """A batch of which one cannot learn; the loop goes on with the next."""


@dataclass
class Trainer:
    """State of one rank. `happens(phase)` is where the bench's faults come in."""

    rank: int
    world_size: int
    weights: torch.Tensor
    transfer: Any
    happens: Callable[[str, Trainer], bool]
    step: int = 0


def rollout(trainer: Trainer, prompts: torch.Tensor) -> torch.Tensor:
    tokens = prompts
    for _ in range(TOKENS):
        tokens = torch.tanh(tokens @ trainer.weights)
    if trainer.happens("rollout", trainer):
        return tokens
    lengths = [torch.zeros(1) for _ in range(trainer.world_size)]
    dist.all_gather(lengths, torch.tensor([float(TOKENS)]))
    return tokens


def reward(trainer: Trainer, completions: torch.Tensor) -> torch.Tensor:
    scores = completions.sum(dim=1)
    if trainer.happens("reward", trainer):
        return scores
    total = scores.sum()
    dist.all_reduce(total)
    return scores - total / (len(scores) * trainer.world_size)


def compute_logprobs(trainer: Trainer, completions: torch.Tensor) -> torch.Tensor:
    logprobs = torch.log_softmax(completions @ trainer.weights, dim=-1).amax(dim=-1)
    if trainer.happens("compute_logprobs", trainer):
        return logprobs
    gathered = [torch.zeros_like(logprobs) for _ in range(trainer.world_size)]
    dist.all_gather(gathered, logprobs)
    return logprobs


def update(trainer: Trainer, completions: torch.Tensor, advantages: torch.Tensor) -> None:
    if trainer.happens("update", trainer):
        return
    for batch in range(MICRO_BATCHES):
        gradient = (completions[batch::MICRO_BATCHES].T @ completions[batch::MICRO_BATCHES]) / 1e3
        gradient = gradient * advantages.mean()
        dist.all_reduce(gradient)
        trainer.weights -= 1e-3 * gradient


def sync_weights(trainer: Trainer) -> None:
    if trainer.happens("sync_weights", trainer):
        return
    dist.broadcast(trainer.weights, src=0, group=trainer.transfer)
    norm = trainer.weights.norm()
    dist.all_reduce(norm)


def train_step(trainer: Trainer, prompts: torch.Tensor) -> None:
    completions = rollout(trainer, prompts)
    scores = reward(trainer, completions)
    logprobs = compute_logprobs(trainer, completions)
    update(trainer, completions, scores * logprobs.exp())
    sync_weights(trainer)


def train(
    rank: int,
    world_size: int,
    steps: int,
    happens: Callable[[str, Trainer], bool],
    stepped: Callable[[int], None],
) -> str:
    """Trains; returns a digest of the final weights, bit for bit."""
    generator = torch.Generator().manual_seed(17)
    weights = torch.randn(WIDTH, WIDTH, generator=generator) / WIDTH**0.5
    trainer = Trainer(rank, world_size, weights, dist.new_group(), happens)
    for trainer.step in range(steps):
        prompts = torch.randn(32, WIDTH, generator=generator)
        with contextlib.suppress(BadBatch):
            train_step(trainer, prompts)
        stepped(trainer.step)
    return hashlib.sha256(trainer.weights.numpy().tobytes()).hexdigest()
