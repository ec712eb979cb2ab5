"""The prompts of one rollout as tensors, and how DataLoader workers make them."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

import torch
from torch.nn.functional import pad

from grpo_doctor_trainer.data.experience import ImageFeatures

if TYPE_CHECKING:
    from PIL.Image import Image

    from grpo_doctor_trainer.data.making import Prompt
    from grpo_doctor_trainer.data.rows import Row
    from grpo_doctor_trainer.model.vision import VisionLayout


@dataclass(frozen=True)
class PromptBatch:
    """The prompts of one rollout on one rank, one entry per completion to make.

    Attributes:
        rows: per completion, the row it answers.
        texts: per completion, the prompt as the model sees it.
        tokens: [completions, longest prompt], padded on the left; an image has as many
            placeholders as embeddings, where `texts` has one.
        mask: the same shape, 1 where `tokens` is not padding.
        images: with a vision-language model, also where no prompt has one; else none.
        pictures: per completion, the images themselves, scaled to `--max_pixels`; only for vLLM,
            and only with a vision-language model.
    """

    rows: list[Row]
    texts: list[str]
    tokens: torch.Tensor
    mask: torch.Tensor
    images: ImageFeatures | None = None
    pictures: list[list[Image]] | None = None


@dataclass(frozen=True)
class Fetched:
    """What a worker sends: a batch, or what is wrong with it.

    An error raised in a worker would arrive as its traceback.

    Attributes:
        batch: none with a problem.
        problem: the message of a DatasetError.
        skipped: images met that could not be read, whose rows others stood in for.
        cut: prompts that lost their start.
        effort: what making it took the worker, by the names of the counters.
    """

    batch: PromptBatch | None
    problem: str | None
    skipped: tuple[str, ...]
    cut: int
    effort: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Failure:
    """A row that ends the run, with the message."""

    message: str


@dataclass(frozen=True)
class Made:
    """A prompt, and the damaged images met on the way to it."""

    prompt: Prompt
    skipped: tuple[str, ...]


@dataclass(frozen=True)
class Collator:
    """Joins the prompts of a rollout; passed to the workers of a DataLoader."""

    pad_token: int
    layout: VisionLayout | None
    keeps_pictures: bool

    def __call__(self, fetched: list[Made | Failure]) -> Fetched:
        """Gives the batch, or the first problem."""
        skipped = tuple(text for made in fetched if isinstance(made, Made) for text in made.skipped)
        for failure in fetched:
            if isinstance(failure, Failure):
                return Fetched(None, failure.message, skipped, 0)
        prompts = [made.prompt for made in fetched if isinstance(made, Made)]
        cut = sum(prompt.cut > 0 for prompt in prompts)
        began = time.perf_counter()
        batch = self._batch(prompts)
        joined_s = time.perf_counter() - began
        return Fetched(batch, None, skipped, cut, _effort(prompts) | {"join_s": joined_s})

    def _batch(self, prompts: list[Prompt]) -> PromptBatch:
        every = [prompt for prompt in prompts for _ in range(prompt.copies)]
        longest = max(len(prompt.tokens) for prompt in every)
        tokens = torch.full((len(every), longest), self.pad_token)
        mask = torch.zeros_like(tokens)
        for line, prompt in enumerate(every):
            start = longest - len(prompt.tokens)
            tokens[line, start:] = torch.tensor(prompt.tokens)
            mask[line, start:] = 1
        return PromptBatch(
            [prompt.row for prompt in every],
            [prompt.text for prompt in every],
            tokens,
            mask,
            self._images(prompts, longest),
            [prompt.vision.pictures if prompt.vision else [] for prompt in every]
            if self.keeps_pictures and self.layout
            else None,
        )

    def _images(self, prompts: list[Prompt], longest: int) -> ImageFeatures | None:
        if self.layout is None:
            return None
        parts = [prompt.vision for prompt in prompts if prompt.vision is not None]
        indices: list[tuple[int, ...]] = []
        positions = []
        first = 0
        for prompt, part in zip(prompts, parts, strict=True):
            count = len(part.grid_thw)
            indices += [tuple(range(first, first + count))] * prompt.copies
            padded = pad(part.positions, (longest - part.positions.size(1), 0))
            positions.append(padded.expand(prompt.copies, -1, -1))
            first += count
        return ImageFeatures(
            torch.cat([part.pixel_values for part in parts]),
            torch.cat([part.grid_thw for part in parts]),
            tuple(indices),
            torch.cat(positions),
            self.layout,
        )


def _effort(prompts: list[Prompt]) -> dict[str, float]:
    parts = [asdict(prompt.effort) for prompt in prompts]
    return {name: float(sum(part[name] for part in parts)) for name in parts[0]}
