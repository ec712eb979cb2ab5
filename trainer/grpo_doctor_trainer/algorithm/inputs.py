"""What a model is given for a batch: tokens, masks, positions and, if it takes them, images.

A rank whose batch has no image would not run the vision tower. Where the other ranks wait for it
in there (ZeRO-3 gathers each layer from all ranks; a trained tower adds its gradients up over all
ranks), such a batch gets a companion: one more row, of a single blank image. Its logits are
dropped, so that it adds nothing to any gradient, and the tower has run.
"""

from __future__ import annotations

from typing import Any

import torch

from grpo_doctor_trainer.algorithm.packing import ARGUMENT, Packing, install
from grpo_doctor_trainer.data.experience import ImageFeatures, TokenBatch
from grpo_doctor_trainer.model.vision import VisionLayout


def model_inputs(batch: TokenBatch) -> dict[str, Any]:
    """Make the arguments of a forward pass over prompts and completions.

    The model's outputs may have one row more than the batch: the companion, which is the last.

    Returns:
        `input_ids` and `attention_mask` [rows, prompt and completion], `position_ids` of the same
        shape, for a vision-language model [3, rows, prompt and completion], and its `pixel_values`
        and `image_grid_thw`; all on the device of the tokens.
    """
    tokens = torch.cat([batch.prompt_tokens, batch.completion_tokens], dim=1)
    mask = torch.cat([batch.prompt_mask, batch.completion_mask], dim=1)
    if batch.images is None:
        positions = (mask.cumsum(dim=1) - 1).clamp(min=0)  # prompts are padded on the left
        return {"input_ids": tokens, "attention_mask": mask, "position_ids": positions}
    layout, prompt_length = batch.images.layout, batch.prompt_tokens.size(1)
    tokens[:, prompt_length:] = _without_placeholders(batch.completion_tokens, layout)
    positions = _positions(batch.images, batch.completion_tokens.size(1)).to(tokens.device)
    if layout.companion and not any(batch.images.counts):
        tokens, mask = _with_companion(tokens, mask, prompt_length, layout)
        positions = torch.cat([positions, torch.zeros_like(positions[:1])])
    return {
        "input_ids": tokens,
        "attention_mask": mask,
        "position_ids": positions.permute(1, 0, 2),
        **_pixels(batch.images, tokens.device, companion=layout.companion),
    }


def needs_companion(batch: TokenBatch) -> bool:
    """Whether the batch has to be given an image of its own."""
    images = batch.images
    return images is not None and images.layout.companion and not any(images.counts)


def packed_inputs(batch: TokenBatch, packing: Packing) -> dict[str, Any]:
    """Make the arguments of a forward pass over one row, as `pack` laid it out.

    Returns:
        the same as `model_inputs`, for a row of [1, tokens], and the layout for the attention; the
        mask is one that masks nothing.
    """
    install()
    of_prompts, of_completions = batch.prompt_mask[packing.rows].bool(), packing.fed
    prompts = batch.prompt_tokens[packing.rows][of_prompts]
    completions = batch.completion_tokens
    inputs: dict[str, Any] = {
        "attention_mask": torch.ones(1, 1, 1, 1, dtype=torch.bool, device=prompts.device),
        ARGUMENT: packing,
    }
    if batch.images is None:
        tokens = torch.cat([prompts, completions[of_completions]])
        positions = torch.cat(packing.positions)
        return inputs | {"input_ids": tokens[None], "position_ids": positions[None]}
    layout = batch.images.layout
    completions = _without_placeholders(completions, layout)
    companion = prompts.new_full((int(needs_companion(batch)),), layout.image_token)
    tokens = torch.cat([prompts, companion, completions[of_completions]])
    places = _positions(batch.images, completions.size(1)).to(tokens.device).transpose(1, 2)
    length = batch.prompt_tokens.size(1)
    positions = torch.cat(
        [
            places[packing.rows, :length][of_prompts],
            places.new_zeros(len(companion), 3),
            places[:, length:][of_completions],
        ]
    )
    images = batch.images.select(packing.rows)
    return inputs | {
        "input_ids": tokens[None],
        "position_ids": positions.T[:, None],
        **_pixels(images, tokens.device, companion=layout.companion),
    }


def generation_inputs(
    tokens: torch.Tensor, mask: torch.Tensor, images: ImageFeatures | None
) -> dict[str, Any]:
    """Make the inputs of `model.generate`, which finds the positions itself.

    Args:
        tokens: [completions, prompt length], padded on the left.
        mask: the same shape, 1 where not padding.
        images: of the prompts; none with a model that takes none.
    """
    inputs: dict[str, Any] = {"input_ids": tokens, "attention_mask": mask}
    if images is None or not any(images.counts):
        return inputs
    if images.layout.typed:
        inputs["mm_token_type_ids"] = (tokens == images.layout.image_token).int()
    return inputs | _pixels(images, tokens.device, companion=False)


def _without_placeholders(completions: torch.Tensor, layout: VisionLayout) -> torch.Tensor:
    # A model can answer with a placeholder, and would then ask for an image to put there. Token 0
    # is as meaningless as the placeholder was.
    placeholders = torch.tensor(layout.placeholders, device=completions.device)
    return completions.masked_fill(torch.isin(completions, placeholders), 0)


def _positions(images: ImageFeatures, completion_length: int) -> torch.Tensor:
    """Continue counting after each prompt: [completions, 3, prompt and completion]."""
    rows = images.positions.size(0)
    following = images.positions.amax(dim=(1, 2)).view(rows, 1, 1) + 1
    counted = (following + torch.arange(completion_length)).expand(-1, 3, -1)
    return torch.cat([images.positions, counted], dim=2)


def _with_companion(
    tokens: torch.Tensor, mask: torch.Tensor, prompt_length: int, layout: VisionLayout
) -> tuple[torch.Tensor, torch.Tensor]:
    """Add a row whose only token is an image of one embedding, at the end of the prompts."""
    row, row_mask = torch.zeros_like(tokens[:1]), torch.zeros_like(mask[:1])
    row[:, prompt_length - 1], row_mask[:, prompt_length - 1] = layout.image_token, 1
    return torch.cat([tokens, row]), torch.cat([mask, row_mask])


def _pixels(
    images: ImageFeatures, device: torch.device, *, companion: bool
) -> dict[str, torch.Tensor]:
    if any(images.counts):
        pixels, grid = images.gathered()
    elif companion:
        merge = images.layout.merge
        pixels = torch.zeros(merge**2, images.layout.patch_values)
        grid = torch.tensor([[1, merge, merge]])
    else:
        return {}
    return {"pixel_values": pixels.to(device), "image_grid_thw": grid.to(device)}
