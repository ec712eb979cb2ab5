"""Lines up a batch as one row without padding, in which a prompt stands once for its completions.

    [ prompt 1 | prompt 2 | completion 1 | completion 2 | ... ]

All that a model computes token by token then has nothing to do for padding, nor for the copies of a
prompt. Attention alone needs to know which tokens belong together (`shared_attention`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from grpo_doctor_trainer.data.experience import TokenBatch


@dataclass(frozen=True)
class Segments:
    """Texts of different lengths that lie one behind the other.

    Attributes:
        filled: [texts, longest], whether a place of the padded form holds a token.
        places: [texts, longest], which token that is; any at padding.
        flat: [tokens], the place of each token in the padded form.
        padded: whether the padded form has padding.
    """

    filled: torch.Tensor
    places: torch.Tensor
    flat: torch.Tensor
    padded: bool

    @classmethod
    def of(cls, lengths: torch.Tensor, device: torch.device) -> Segments:
        """Lines texts up.

        Args:
            lengths: of each text, in host memory.
            device: where the rest is to lie.
        """
        width = int(lengths.max()) if len(lengths) else 0
        filled = torch.arange(width) < lengths.unsqueeze(1)
        places = (filled.flatten().cumsum(0) - 1).clamp(min=0).view_as(filled)
        flat = filled.flatten().nonzero().squeeze(1)
        padded = len(flat) < filled.numel()
        return cls(filled.to(device), places.to(device), flat.to(device), padded)

    def spread(self, values: torch.Tensor) -> torch.Tensor:
        """Turns [heads, tokens, width of a head] into [texts, heads, longest, width of a head]."""
        if self.padded:
            values = values.index_select(1, self.places.flatten())
        rows, width = self.places.shape
        return values.view(len(values), rows, width, -1).transpose(0, 1)

    def gathered(self, values: torch.Tensor) -> torch.Tensor:
        """Turns [texts, heads, longest, width of a head] into [tokens, heads, width of a head]."""
        values = values.transpose(1, 2).flatten(0, 1)
        return values.index_select(0, self.flat) if self.padded else values


@dataclass(frozen=True)
class Packing:
    """Where everything of a batch lies in its row.

    Attributes:
        rows: [prompts], the first completion of each prompt.
        prompts: the prompts; the last may be a companion (`inputs`).
        completions: the completions without their last token, which predicts nothing.
        prompt_of: [completions], the prompt of each.
        visible: [completions or 1, 1, longest, longest prompt and longest completion], what the
            tokens of a completion look at.
        fed: [completions, tokens], what of the batch's completions is in `completions`.
        positions: [tokens of prompts] and [tokens of completions], each counted from its prompt.
        predicting: [tokens in completions], the place in the row that predicts each.
        predicted: [tokens in completions], their places in the batch's completions.
    """

    rows: torch.Tensor
    prompts: Segments
    completions: Segments
    prompt_of: torch.Tensor
    visible: torch.Tensor
    fed: torch.Tensor
    positions: tuple[torch.Tensor, torch.Tensor]
    predicting: torch.Tensor
    predicted: torch.Tensor = field(repr=False)

    def scattered(self, values: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
        """Puts a value of each predicted token where the token is, 0 elsewhere."""
        places = values.new_zeros(like.numel()).index_copy(0, self.predicted, values)
        return places.view_as(like)


def pack(batch: TokenBatch, *, companion: bool = False) -> Packing | None:
    """Finds prompts that are equal, whatever completions of a group the batch has.

    Args:
        batch: prompts and completions.
        companion: whether a prompt of one token without completions follows the others.

    Returns:
        the layout; none where a prompt has no token, so that nothing would predict the first of
        its completion.
    """
    device = batch.prompt_tokens.device
    rows, prompt_of = batch.distinct_prompts()
    prompt_lengths = batch.prompt_mask.sum(dim=1).cpu()[rows]
    if not len(rows) or not prompt_lengths.all():
        return None
    lengths = batch.completion_mask.sum(dim=1).cpu()
    prompts = Segments.of(torch.cat([prompt_lengths, torch.ones(int(companion)).long()]), device)
    completions = Segments.of((lengths - 1).clamp(min=0), device)

    ends = prompt_lengths.cumsum(0)
    column = torch.arange(batch.completion_mask.size(1))
    exists = column < lengths.unsqueeze(1)
    starts = len(prompts.flat) + (lengths - 1).clamp(min=0).cumsum(0) - lengths
    behind = starts.unsqueeze(1) + column
    predicting = torch.where(column == 0, ends[prompt_of].unsqueeze(1) - 1, behind)[exists]
    fed = column < (lengths - 1).unsqueeze(1)
    counted = prompt_lengths[prompt_of].unsqueeze(1) + column
    places = torch.arange(int(prompts.filled.size(1))) * torch.ones(len(rows) + companion, 1).long()
    return Packing(
        rows.to(device),
        prompts,
        completions,
        prompt_of.to(device),
        _visible(prompts, completions, prompt_of.to(device)),
        fed.to(device),
        (places[prompts.filled.cpu()].to(device), counted[fed].to(device)),
        predicting.to(device),
        exists.flatten().nonzero().squeeze(1).to(device),
    )


def _visible(prompts: Segments, completions: Segments, prompt_of: torch.Tensor) -> torch.Tensor:
    width = completions.filled.size(1)
    square = torch.ones(width, width, dtype=torch.bool, device=prompt_of.device).tril()
    before = prompts.filled[prompt_of] if prompts.padded else prompts.filled[:1]
    before = before[:, None, None, :].expand(-1, -1, width, -1)
    return torch.cat([before, square.expand(len(before), 1, -1, -1)], dim=3)
