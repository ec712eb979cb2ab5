"""Makes a prompt of a row: the chat template, tokens, and its images as the model takes them."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from grpo_doctor_trainer.config.validation import pixel_limit
from grpo_doctor_trainer.data.checking import describe_image
from grpo_doctor_trainer.data.images import BadImageError, read_image
from grpo_doctor_trainer.errors import ConfigError, DatasetError
from grpo_doctor_trainer.model.vision import VisionLayout, rope_positions

if TYPE_CHECKING:
    from PIL.Image import Image

    from grpo_doctor_trainer.config import TrainerConfig
    from grpo_doctor_trainer.data.rows import Row
    from grpo_doctor_trainer.model.load import LoadedModel


@dataclass(frozen=True)
class Vision:
    """What a prompt of a vision-language model has beside its tokens.

    Attributes:
        pixel_values: [patches of its images, values of a patch].
        grid_thw: [images, 3].
        positions: [3, tokens].
        pictures: the images themselves, only for an engine that wants them.
    """

    pixel_values: torch.Tensor
    grid_thw: torch.Tensor
    positions: torch.Tensor
    pictures: list[Image]


@dataclass(frozen=True)
class Effort:
    """What making prompts took: seconds of one process, and the images it was for.

    Attributes:
        read_s: reading image files, decoding them and scaling them down.
        process_s: cutting images into the patches that the model takes.
        tokenize_s: the chat template and the tokenizer.
        decoded_pixels: of the images as they are stored.
        pixels: of the images as they were processed.
        image_tokens: places of the prompt that images take.
    """

    read_s: float = 0.0
    process_s: float = 0.0
    tokenize_s: float = 0.0
    images: int = 0
    decoded_pixels: int = 0
    pixels: int = 0
    image_tokens: int = 0


@dataclass(frozen=True)
class Prompt:
    """One prompt of this rank, `copies` completions of which it makes.

    Attributes:
        row: what it was made of.
        text: after the chat template, with one placeholder per image.
        tokens: with as many placeholders as each image has embeddings.
        copies: completions to make.
        cut: tokens that were cut off its start.
        vision: none with a model that takes no images.
        effort: what it took to make.
    """

    row: Row
    text: str
    tokens: list[int]
    copies: int
    cut: int = 0
    vision: Vision | None = None
    effort: Effort = Effort()


@dataclass(frozen=True)
class PromptMaker:
    """Makes prompts; goes to the DataLoader's workers.

    Attributes:
        tokenizer: with the chat template, if there is one.
        limit: the most tokens of a prompt.
        image_processor: and the rest: see `prompt_maker`; none with a model without images.
        layout: of the model's inputs.
        max_pixels: the largest area of an image.
        keeps_pictures: whether prompts carry the images themselves too.
    """

    tokenizer: Any
    limit: int
    image_processor: Any = None
    layout: VisionLayout | None = None
    max_pixels: int | None = None
    keeps_pictures: bool = False

    def make(self, row: Row, copies: int) -> Prompt:
        """Makes one prompt; text that is too long loses its start.

        Args:
            row: of the dataset.
            copies: completions of it that this rank makes.

        Raises:
            BadImageError: an image cannot be read; the message names it.
            DatasetError: a prompt with images is too long, or the template has no place for them.
        """
        began = time.perf_counter()
        text = self._text(row)
        ids = self.tokenizer(text, add_special_tokens=not self.tokenizer.chat_template)["input_ids"]
        tokenized = time.perf_counter()
        if self.layout is None:
            effort = Effort(tokenize_s=tokenized - began)
            cut = max(0, len(ids) - self.limit)
            return Prompt(row, text, ids[-self.limit :], copies, cut, effort=effort)
        decoded = [self._read(row, number) for number in range(1, len(row.images) + 1)]
        pictures = [picture for picture, _ in decoded]
        read = time.perf_counter()
        pixels, grid = self._processed(row, pictures, self.layout)
        processed = time.perf_counter()
        tokens = _expanded(row, ids, grid.tolist(), self.layout)
        cut = max(0, len(tokens) - self.limit)
        if cut and pictures:
            raise DatasetError(
                f"{row.location}: the prompt has {len(tokens)} tokens, "
                f"{tokens.count(self.layout.image_token)} of them for its {len(pictures)} images, "
                f"and {self.limit} at most fit; a prompt with images cannot be cut. Make images "
                "smaller with --max_pixels, raise --max_length, lower --max_completion_length if "
                "the model's context is the limit, or take the row out"
            )
        tokens = tokens[-self.limit :]
        positions = rope_positions(tokens, grid.tolist(), self.layout)
        vision = Vision(pixels, grid, positions, pictures if self.keeps_pictures else [])
        effort = Effort(
            read_s=read - tokenized,
            process_s=processed - read,
            tokenize_s=tokenized - began,
            images=len(pictures),
            decoded_pixels=sum(pixels for _, pixels in decoded),
            pixels=sum(picture.width * picture.height for picture in pictures),
            image_tokens=tokens.count(self.layout.image_token),
        )
        return Prompt(row, text, tokens, copies, cut, vision, effort)

    def _text(self, row: Row) -> str:
        if not self.tokenizer.chat_template:
            return "\n".join(self._untemplated(message["content"]) for message in row.messages)
        text: str = self.tokenizer.apply_chat_template(
            row.messages, tokenize=False, add_generation_prompt=True
        )
        return text

    def _untemplated(self, content: str | list[dict[str, str]]) -> str:
        if isinstance(content, str):
            return content
        mark = self.layout and self.tokenizer.convert_ids_to_tokens(self.layout.image_token)
        return "".join(part["text"] if part["type"] == "text" else str(mark) for part in content)

    def _read(self, row: Row, number: int) -> tuple[Image, int]:
        try:
            return read_image(row.images[number - 1], self.max_pixels)
        except BadImageError as error:
            raise BadImageError(describe_image(row, number, str(error))) from error

    def _processed(
        self, row: Row, pictures: list[Image], layout: VisionLayout
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if not pictures:
            return torch.zeros(0, layout.patch_values), torch.zeros(0, 3, dtype=torch.long)
        try:
            processed = self.image_processor(images=pictures, return_tensors="pt")
        except ValueError as error:  # such as sides of too different lengths
            raise BadImageError(f"{row.location}: its images: {error}") from error
        return processed["pixel_values"], processed["image_grid_thw"]


def _expanded(row: Row, ids: list[int], grids: list[list[int]], layout: VisionLayout) -> list[int]:
    """Gives each image as many placeholders as it has embeddings."""
    if ids.count(layout.image_token) != len(grids):
        raise DatasetError(
            f"{row.location}: the prompt has {ids.count(layout.image_token)} "
            f"places for {len(grids)} images after the model's chat template; write images as "
            '<image> or {"type": "image"}, and not as the model\'s own tokens'
        )
    remaining = iter(grids)
    counts = (layout.image_tokens(next(remaining)) if t == layout.image_token else 1 for t in ids)
    return [token for token, count in zip(ids, counts, strict=True) for _ in range(count)]


def prompt_maker(loaded: LoadedModel, config: TrainerConfig) -> PromptMaker:
    """Gathers what prompts are made with.

    Raises:
        ConfigError: no room for a prompt, or a largest area that is no number.
    """
    return PromptMaker(
        loaded.tokenizer,
        prompt_limit(config, loaded.context),
        loaded.processor.image_processor if loaded.processor else None,
        loaded.vision,
        pixel_limit(config),
        keeps_pictures=config.use_vllm,
    )


def prompt_limit(config: TrainerConfig, context: int | None) -> int:
    """Counts the tokens a prompt may have: `--max_length`, or what the context leaves for it.

    With `--use_vllm` and `--vllm_max_model_len` that is the context.

    Args:
        config: the options.
        context: the most tokens that the model can take, if it says.

    Raises:
        ConfigError: the completion alone fills the model's context.
    """
    if config.use_vllm and config.vllm_max_model_len is not None:
        context = min(config.vllm_max_model_len, context or config.vllm_max_model_len)
    if context is None:
        return config.max_length
    if context <= config.max_completion_length:
        raise ConfigError(
            f"--max_completion_length {config.max_completion_length} leaves no room for a prompt "
            f"in the model's context of {context} tokens; make it smaller"
        )
    return min(config.max_length, context - config.max_completion_length)
