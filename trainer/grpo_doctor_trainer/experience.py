"""What a rollout leaves behind for training: tokens, advantages and earlier log-probs."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True)
class ImageFeatures:
    """The images of several completions' prompts, as the vision tower takes them.

    Attributes:
        pixel_values: [patches of all images, values of a patch].
        grid_thw: [images, 3], each image's patches in time, height and width.
        counts: the images of each completion's prompt.
    """

    pixel_values: torch.Tensor
    grid_thw: torch.Tensor
    counts: tuple[int, ...]

    def select(self, rows: torch.Tensor) -> ImageFeatures | None:
        """Takes the images of some completions; none if these have no image."""
        first_image = [0, *itertools.accumulate(self.counts)]
        patches = self.grid_thw.prod(dim=1).tolist()
        first_patch = [0, *itertools.accumulate(patches)]
        chosen = rows.tolist()
        images = [i for row in chosen for i in range(first_image[row], first_image[row + 1])]
        if not images:
            return None
        pixels = [self.pixel_values[first_patch[i] : first_patch[i + 1]] for i in images]
        counts = tuple(self.counts[row] for row in chosen)
        return ImageFeatures(torch.cat(pixels), self.grid_thw[images], counts)

    def to(self, device: torch.device) -> ImageFeatures:
        """Moves the images to a device."""
        return ImageFeatures(self.pixel_values.to(device), self.grid_thw.to(device), self.counts)


@dataclass(frozen=True)
class TokenBatch:
    """Prompts and completions as tokens.

    Attributes:
        prompt_tokens: [completions, prompt length], padded on the left.
        prompt_mask: the same shape, 1 where not padding.
        completion_tokens: [completions, completion length], padded on the right.
        completion_mask: the same shape, 1 up to and including the first end token.
        images: of the prompts; none where no prompt has one.
    """

    prompt_tokens: torch.Tensor
    prompt_mask: torch.Tensor
    completion_tokens: torch.Tensor
    completion_mask: torch.Tensor
    images: ImageFeatures | None = None

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
            None if self.images is None else self.images.select(rows),
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
        sampling_logprobs: the same as the rollout engine sampled them; none where it is
            transformers on the trained weights.
        kept: [completions], 1 for those in the loss; none: all of them.
    """

    tokens: TokenBatch
    advantages: torch.Tensor
    old_logprobs: torch.Tensor | None
    reference_logprobs: torch.Tensor | None
    sampling_logprobs: torch.Tensor | None = None
    kept: torch.Tensor | None = None

    def select(self, rows: torch.Tensor) -> Experience:
        """Takes some completions."""
        return Experience(
            self.tokens.select(rows),
            self.advantages[rows],
            *(
                None if values is None else values[rows]
                for values in (
                    self.old_logprobs,
                    self.reference_logprobs,
                    self.sampling_logprobs,
                    self.kept,
                )
            ),
        )

    @property
    def loss_mask(self) -> torch.Tensor:
        """[completions, completion length], 1 for each token that is in the loss."""
        mask = self.tokens.completion_mask
        return mask if self.kept is None else mask * self.kept.unsqueeze(1)


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
