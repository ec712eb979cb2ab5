"""What is special about vision-language models of the Qwen2-VL family: their parts and inputs."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from grpo_doctor_trainer.config import TrainerConfig
from grpo_doctor_trainer.errors import ConfigError, ModelError
from grpo_doctor_trainer.validation import NOTHING_TO_TRAIN

# Names of modules, in transformers 4 (visual.blocks...) and 5 (model.visual.blocks...). What joins
# the tower to the language model is the patch merger, inside `visual`.
_TOWER, _ALIGNER, _LANGUAGE = (
    r".*\bvisual\.(?!.*merger).*",
    r".*\bvisual\..*merger.*",
    r"(?!.*\bvisual\.).*",
)


@dataclass(frozen=True)
class VisionLayout:
    """How the inputs of a vision-language model are laid out.

    Attributes:
        image_token: is in the tokens once for each embedding that the vision tower gives.
        placeholders: all tokens of that kind, also of videos; they mean nothing in a completion.
        merge: side of the square of patches that become one embedding.
        patch_values: values of one patch.
        companion: whether a forward pass without an image has to run the vision tower
            anyway, because the other ranks wait in it (see `inputs.py`).
        typed: whether the model asks which tokens are images (transformers 5; 4 finds them itself).
    """

    image_token: int
    placeholders: tuple[int, ...]
    merge: int
    patch_values: int
    companion: bool
    typed: bool

    def image_tokens(self, grid: Sequence[int]) -> int:
        """Count the embeddings of an image of so many patches in time, height and width."""
        time, height, width = grid
        return time * height * width // self.merge**2


@dataclass(frozen=True)
class VisionProcessor:
    """A tokenizer and an image processor.

    Not transformers' own processor: that one also wants a video processor, which needs torchvision.

    Attributes:
        tokenizer: with the model's chat template.
        image_processor: turns PIL images into patches.
    """

    tokenizer: Any
    image_processor: Any

    def save_pretrained(self, folder: str | Path) -> None:
        """Write the files from which AutoProcessor makes the whole processor."""
        self.tokenizer.save_pretrained(folder)
        self.image_processor.save_pretrained(folder)


def is_vision_language(model_config: Any) -> bool:
    """Whether a transformers configuration is of a model that takes images."""
    return getattr(model_config, "vision_config", None) is not None


def vision_layout(model: Any, *, companion: bool) -> VisionLayout:
    """Read the layout from a model of the Qwen2-VL family."""
    config = model.config
    vision = config.vision_config
    try:
        merge, patch = vision.spatial_merge_size, vision.patch_size
        values = getattr(vision, "in_channels", 3) * vision.temporal_patch_size * patch**2
        tokens = (config.image_token_id, config.video_token_id)
    except AttributeError as error:
        raise ModelError(
            f"{type(model).__name__} takes images in a way that this trainer does not know "
            f"({error}); it trains Qwen2-VL, Qwen2.5-VL and Qwen3-VL"
        ) from None
    typed = "mm_token_type_ids" in inspect.signature(model.forward).parameters
    return VisionLayout(tokens[0], tokens, merge, values, companion, typed)


def freeze_parts(model: Any, config: TrainerConfig) -> None:
    """Apply `--freeze_vit`, `--freeze_aligner` and `--freeze_llm` to the weights."""
    for name, weight in model.named_parameters():
        part = "freeze_llm"
        if "visual." in name:
            part = "freeze_aligner" if "merger" in name.partition("visual.")[2] else "freeze_vit"
        weight.requires_grad_(not getattr(config, part))
    if not any(weight.requires_grad for weight in model.parameters()):
        raise ConfigError(NOTHING_TO_TRAIN)


def frozen_modules(config: TrainerConfig) -> str | None:
    """Return the regular expression of the modules that get no LoRA adapters, if any."""
    parts = (
        (config.freeze_vit, _TOWER),
        (config.freeze_aligner, _ALIGNER),
        (config.freeze_llm, _LANGUAGE),
    )
    return "|".join(f"(?:{names})" for frozen, names in parts if frozen) or None


def rope_positions(
    tokens: Sequence[int], grids: Sequence[Sequence[int]], layout: VisionLayout
) -> torch.Tensor:
    """Give each token of a prompt its place in time, height and width.

    Text counts up in all three. The tokens of an image share one place in time and lie in rows and
    columns; text continues after the longer side ("Qwen2-VL", arXiv:2409.12191, section 2.1).

    Returns:
        [3, tokens], int64.
    """
    parts, start = [], 0
    remaining = iter(grids)
    for is_image, run in itertools.groupby(tokens, lambda token: token == layout.image_token):
        length = len(list(run))
        if not is_image:
            parts.append((torch.arange(length) + start).expand(3, -1))
            start += length
            continue
        covered = 0
        while covered < length:  # images that touch are one run of tokens
            time, height, width = next(remaining)
            sides = (time, height // layout.merge, width // layout.merge)
            axes = torch.meshgrid(*(torch.arange(side) for side in sides), indexing="ij")
            parts.append(torch.stack(axes).flatten(1) + start)
            start += max(sides)
            covered += layout.image_tokens((time, height, width))
    return torch.cat(parts, dim=1) if parts else torch.zeros(3, 0, dtype=torch.long)
