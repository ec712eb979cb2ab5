"""Cuts a rollout into shuffled micro-batches, and knows how far training has come in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from grpo_doctor_trainer.data.experience import Experience


@dataclass
class Feed:
    """The micro-batches of one rollout, `--num_iterations` times in a new order each.

    Attributes:
        experience: all completions of the rollout on this rank.
        order: the completions in the order in which they are still to be trained on.
        size: completions of a micro-batch.
    """

    experience: Experience
    order: torch.Tensor
    size: int

    @classmethod
    def shuffled(cls, experience: Experience, *, size: int, iterations: int) -> Feed:
        """Draws the orders from torch's random state."""
        orders = [torch.randperm(len(experience.tokens)) for _ in range(iterations)]
        return cls(experience, torch.cat(orders), size)

    @property
    def empty(self) -> bool:
        """Whether a new rollout is due."""
        return len(self.order) == 0

    def take(self, count: int) -> list[Experience]:
        """Takes the next `count` micro-batches."""
        device = self.experience.advantages.device
        taken = []
        for _ in range(count):
            rows, self.order = self.order[: self.size], self.order[self.size :]
            taken.append(self.experience.select(rows.to(device)))
        return taken
