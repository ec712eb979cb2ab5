"""What a rollout leaves behind for training: tokens, advantages and earlier log-probs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True)
class TokenBatch:
    """Prompts and completions as tokens.

    Attributes:
        prompt_tokens: [completions, prompt length], padded on the left.
        prompt_mask: the same shape, 1 where not padding.
        completion_tokens: [completions, completion length], padded on the right.
        completion_mask: the same shape, 1 up to and including the first end token.
    """

    prompt_tokens: torch.Tensor
    prompt_mask: torch.Tensor
    completion_tokens: torch.Tensor
    completion_mask: torch.Tensor

    def __len__(self) -> int:
        """Counts the completions."""
        return self.completion_tokens.size(0)

    def select(self, rows: torch.Tensor) -> TokenBatch:
        """Takes some completions."""
        return TokenBatch(
            self.prompt_tokens[rows],
            self.prompt_mask[rows],
            self.completion_tokens[rows],
            self.completion_mask[rows],
        )

    def parts(self, size: int) -> Iterator[TokenBatch]:
        """Cuts the batch into parts of at most `size` completions."""
        every = torch.arange(len(self))
        for start in range(0, len(self), size):
            yield self.select(every[start : start + size])


@dataclass(frozen=True)
class Experience:
    """The completions of one rollout on this rank, ready for the loss.

    Attributes:
        tokens: prompts and completions.
        advantages: [completions].
        old_logprobs: [completions, completion length] of the weights that sampled; none where
            these are the weights that are trained.
        reference_logprobs: the same of the reference model; none without a KL term.
    """

    tokens: TokenBatch
    advantages: torch.Tensor
    old_logprobs: torch.Tensor | None
    reference_logprobs: torch.Tensor | None

    def select(self, rows: torch.Tensor) -> Experience:
        """Takes some completions."""
        return Experience(
            self.tokens.select(rows),
            self.advantages[rows],
            None if self.old_logprobs is None else self.old_logprobs[rows],
            None if self.reference_logprobs is None else self.reference_logprobs[rows],
        )


def mask_after_end(tokens: torch.Tensor, end_tokens: tuple[int, ...]) -> torch.Tensor:
    """Marks the tokens of each completion up to and including its first end token.

    Args:
        tokens: [completions, tokens].
        end_tokens: the tokens that end a completion.

    Returns:
        [completions, tokens] of 0 and 1, int64.
    """
    ends = torch.isin(tokens, torch.tensor(end_tokens, device=tokens.device)).long()
    ended_before = ends.cumsum(dim=1) - ends
    return (ended_before == 0).long()
