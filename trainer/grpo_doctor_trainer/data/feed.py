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
        """Draws the orders from torch's random state.

        Args:
            experience: of one rollout.
            size: completions of a micro-batch.
            iterations: how often each completion is trained on.
        """
        orders = [torch.randperm(len(experience.tokens)) for _ in range(iterations)]
        return cls(experience, torch.cat(orders), size)

    @property
    def empty(self) -> bool:
        """Whether a new rollout is due."""
        return len(self.order) == 0

    def take(
        self, count: int, *, by_length: bool = False, by_prompt: bool = False
    ) -> list[Experience]:
        """Takes the next `count` micro-batches.

        Args:
            count: as many as go into one optimizer step.
            by_length: put completions of like length together, the longest first, and cut off the
                padding that a micro-batch does not need. The same completions are in the step.
            by_prompt: otherwise, put completions of the same prompt together.
        """
        device = self.experience.advantages.device
        rows, self.order = self.order[: count * self.size], self.order[count * self.size :]
        if by_length:
            return [
                self.experience.select(part.to(device)).trimmed(prompt, completion)
                for part, prompt, completion in self._grouped(rows)
            ]
        if by_prompt and count > 1:
            _, prompt_of = self.experience.tokens.select(rows.to(device)).distinct_prompts()
            rows = rows[prompt_of.argsort(stable=True)]
        return [self.experience.select(part.to(device)) for part in torch.split(rows, self.size)]

    def places_by_length(self, count: int) -> int:
        """Counts the tokens and the padding that `take` would give with `by_length`."""
        parts = self._grouped(self.order[: count * self.size])
        return sum(len(part) * (prompt + completion) for part, prompt, completion in parts)

    def _grouped(self, rows: torch.Tensor) -> list[tuple[torch.Tensor, int, int]]:
        """Each micro-batch's completions, and its longest prompt and completion in tokens."""
        tokens = self.experience.tokens
        masks = (tokens.prompt_mask, tokens.completion_mask)
        sizes = torch.stack([mask.sum(dim=1) for mask in masks], dim=1).cpu()[rows]
        order = sizes.sum(dim=1).argsort(descending=True, stable=True)
        return [(rows[p], *sizes[p].amax(dim=0).tolist()) for p in torch.split(order, self.size)]
