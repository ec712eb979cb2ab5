"""What a rollout leaves for training, and the micro-batches that are cut out of it."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from grpo_doctor_trainer.model.vision import VisionLayout


@dataclass(frozen=True)
class ImageFeatures:
    """The images of several completions' prompts, as the vision tower takes them.

    Every image is here once, however many completions its prompt has. A batch of a vision-language
    model has this also where no prompt has an image: its tokens need positions anyway.

    Attributes:
        pixel_values: [patches of all images, values of a patch], float32, in host memory.
        grid_thw: [images, 3], each image's patches in time, height and width, in host memory.
        indices: per completion, the images of its prompt.
        positions: [completions, 3, prompt length], each prompt token's place in time, height and
            width (`rope_positions`), in host memory; 0 at padding.
        layout: of the model's inputs.
    """

    pixel_values: torch.Tensor
    grid_thw: torch.Tensor
    indices: tuple[tuple[int, ...], ...]
    positions: torch.Tensor
    layout: VisionLayout

    @property
    def counts(self) -> tuple[int, ...]:
        """The number of images of each completion's prompt."""
        return tuple(len(images) for images in self.indices)

    def select(self, rows: torch.Tensor) -> ImageFeatures:
        """Take some completions; the images stay where they are."""
        chosen = rows.cpu()
        indices = tuple(self.indices[row] for row in chosen.tolist())
        return dataclasses.replace(self, indices=indices, positions=self.positions[chosen])

    def gathered(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Line up the images of each completion, one after the other.

        Returns:
            [patches, values of a patch] and [images, 3]; both empty where there is no image.
        """
        patches = self.grid_thw.prod(dim=1).tolist()
        ends = [*itertools.accumulate(patches, initial=0)]
        images = [image for row in self.indices for image in row]
        pixels = [self.pixel_values[ends[image] : ends[image + 1]] for image in images]
        return torch.cat(pixels or [self.pixel_values[:0]]), self.grid_thw[images]


@dataclass(frozen=True)
class TokenBatch:
    """Prompts and completions as tokens.

    Attributes:
        prompt_tokens: [completions, prompt length], padded on the left.
        prompt_mask: the same shape, 1 where not padding.
        completion_tokens: [completions, completion length], padded on the right.
        completion_mask: the same shape, 1 up to and including the first end token.
        images: of the prompts; none with a model that takes none.
    """

    prompt_tokens: torch.Tensor
    prompt_mask: torch.Tensor
    completion_tokens: torch.Tensor
    completion_mask: torch.Tensor
    images: ImageFeatures | None = None

    def __len__(self) -> int:
        """Count the completions."""
        return self.completion_tokens.size(0)

    def select(self, rows: torch.Tensor) -> TokenBatch:
        """Take some completions."""
        return TokenBatch(
            self.prompt_tokens[rows],
            self.prompt_mask[rows],
            self.completion_tokens[rows],
            self.completion_mask[rows],
            None if self.images is None else self.images.select(rows),
        )

    def distinct_prompts(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Find prompts that are equal in tokens and images.

        Returns:
            [prompts], the first completion of each, and [completions], the prompt of each; both in
            host memory.
        """
        tokens, mask = self.prompt_tokens.cpu(), self.prompt_mask.cpu().bool()
        numbers: dict[tuple[bytes, tuple[int, ...]], int] = {}
        first: list[int] = []
        prompt_of: list[int] = []
        for row in range(len(self)):
            images = () if self.images is None else self.images.indices[row]
            key = (tokens[row][mask[row]].numpy().tobytes(), images)
            if key not in numbers:
                numbers[key] = len(first)
                first.append(row)
            prompt_of.append(numbers[key])
        return torch.tensor(first, dtype=torch.long), torch.tensor(prompt_of, dtype=torch.long)

    @property
    def places(self) -> int:
        """Count tokens and padding."""
        return self.prompt_tokens.numel() + self.completion_tokens.numel()

    @property
    def filled(self) -> int:
        """Count tokens without padding."""
        return int(self.prompt_mask.sum() + self.completion_mask.sum())

    def parts(self, size: int) -> Iterator[TokenBatch]:
        """Cut the batch into parts of at most `size` completions."""
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
        """Take some completions."""
        names = ("old_logprobs", "reference_logprobs", "sampling_logprobs", "kept")
        values = {name: getattr(self, name) for name in names}
        chosen = {n: None if v is None else v[rows] for n, v in values.items()}
        return Experience(self.tokens.select(rows), self.advantages[rows], **chosen)

    @property
    def loss_mask(self) -> torch.Tensor:
        """[completions, completion length], 1 for each token that is in the loss."""
        mask = self.tokens.completion_mask
        return mask if self.kept is None else mask * self.kept.unsqueeze(1)


def mask_after_end(tokens: torch.Tensor, end_tokens: tuple[int, ...]) -> torch.Tensor:
    """Mark the tokens of each completion up to and including its first end token.

    Args:
        tokens: [completions, tokens].
        end_tokens: the tokens that end a completion.

    Returns:
        [completions, tokens] of 0 and 1, int64.
    """
    ends = torch.isin(tokens, torch.tensor(end_tokens, device=tokens.device)).long()
    ended_before = ends.cumsum(dim=1) - ends
    return (ended_before == 0).long()


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
        """Draw the orders from torch's random state."""
        orders = [torch.randperm(len(experience.tokens)) for _ in range(iterations)]
        return cls(experience, torch.cat(orders), size)

    @property
    def empty(self) -> bool:
        """Whether a new rollout is due."""
        return len(self.order) == 0

    def take(self, count: int, *, by_prompt: bool = False) -> list[Experience]:
        """Take the next `count` micro-batches."""
        device = self.experience.advantages.device
        rows, self.order = self.order[: count * self.size], self.order[count * self.size :]
        if by_prompt and count > 1:
            _, prompt_of = self.experience.tokens.select(rows.to(device)).distinct_prompts()
            rows = rows[prompt_of.argsort(stable=True)]
        return [self.experience.select(part.to(device)) for part in torch.split(rows, self.size)]
