"""What is worth knowing about the loss: by token, of micro-batches, then of all ranks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from grpo_doctor_trainer.ranks.group import gather_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from grpo_doctor_trainer.algorithm.importance import RolloutGap
    from grpo_doctor_trainer.data.experience import Experience
    from grpo_doctor_trainer.ranks.group import Ranks

SUMS = (
    *("loss", "micro_batches", "tokens", "loss_tokens", "entropy", "clipped_low", "clipped_high"),
    *("kl_tokens", "kl", "gap_tokens", "gap", "weight"),
)
"""Of all micro-batches: losses, counts, and values of the tokens in the loss."""
LOWEST = ("clipped_low", "weight")
"""The least share of clipped tokens in a completion, the least weight of a token."""
HIGHEST = ("clipped_high", "gap", "weight")
"""The greatest share of clipped tokens in a completion, gap and weight of a token."""


@dataclass(frozen=True)
class LossTerms:
    """The loss of each token and what is worth knowing about it, all [completions, tokens].

    Attributes:
        loss: what is minimized.
        kl: the estimated divergence from the reference model; none without one.
        clipped_low: whether clipping stops the gradient because the token became too unlikely.
        clipped_high: the same because it became too likely.
        gap: between the engine that sampled and the trainer; none where they are one.
    """

    loss: torch.Tensor
    kl: torch.Tensor | None
    clipped_low: torch.Tensor
    clipped_high: torch.Tensor
    gap: RolloutGap | None


@dataclass(frozen=True)
class LossStatistics:
    """Of one micro-batch, of several, or of all ranks; float32, on the training device.

    Attributes:
        sums: [len(SUMS)].
        lowest: [len(LOWEST)], inf where there was nothing to look at.
        highest: [len(HIGHEST)], -inf where there was nothing to look at.
    """

    sums: torch.Tensor
    lowest: torch.Tensor
    highest: torch.Tensor

    @classmethod
    def joined(cls, parts: Sequence[LossStatistics]) -> LossStatistics:
        """Puts several together."""
        return cls(
            torch.stack([part.sums for part in parts]).sum(dim=0),
            torch.stack([part.lowest for part in parts]).amin(dim=0),
            torch.stack([part.highest for part in parts]).amax(dim=0),
        )

    def over(self, ranks: Ranks) -> LossStatistics:
        """Puts those of all ranks together, in one collective; the result is on the CPU."""
        mine = torch.cat([self.sums, self.lowest, self.highest]).unsqueeze(0)
        sizes = [len(SUMS), len(LOWEST), len(HIGHEST)]
        every = gather_rows(mine, ranks).cpu()
        return LossStatistics.joined([LossStatistics(*row.split(sizes)) for row in every])


@torch.no_grad()
def loss_statistics(
    loss: torch.Tensor, terms: LossTerms, entropies: torch.Tensor, experience: Experience
) -> LossStatistics:
    """Looks at one micro-batch.

    Args:
        loss: of the micro-batch, one number.
        terms: the loss by token.
        entropies: [completions, tokens], in nats.
        experience: the micro-batch.
    """
    mask, tokens = experience.loss_mask, experience.tokens
    lengths, zero = mask.sum(dim=1), loss.new_zeros(())
    sums = {
        "loss": loss.detach(),
        "micro_batches": zero + 1,
        "tokens": tokens.prompt_mask.sum() + tokens.completion_mask.sum(),
        "loss_tokens": lengths.sum(),
        "entropy": (entropies * mask).sum(),
    }
    lowest, highest = {}, {}
    for name, clipped in (("clipped_low", terms.clipped_low), ("clipped_high", terms.clipped_high)):
        counts = (clipped * mask).sum(dim=1)
        shares = counts / lengths.clamp(min=1)
        sums[name] = counts.sum()
        lowest[name], highest[name] = _extremes(shares, lengths > 0)
    if terms.kl is not None:
        sums |= {"kl_tokens": sums["loss_tokens"], "kl": (terms.kl * mask).sum()}
    if terms.gap is not None:
        counted = terms.gap.mask
        sums["gap_tokens"] = counted.sum()
        for name, values in (("gap", terms.gap.distance), ("weight", terms.gap.weight)):
            sums[name] = (values * counted).sum()
            lowest[name], highest[name] = _extremes(values, counted)
    return LossStatistics(
        torch.stack([sums.get(name, zero).float() for name in SUMS]),
        torch.stack([lowest.get(name, zero + torch.inf).float() for name in LOWEST]),
        torch.stack([highest.get(name, zero - torch.inf).float() for name in HIGHEST]),
    )


def _extremes(values: torch.Tensor, counted: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    lowest = values.masked_fill(~counted, torch.inf).amin()
    return lowest, values.masked_fill(~counted, -torch.inf).amax()
