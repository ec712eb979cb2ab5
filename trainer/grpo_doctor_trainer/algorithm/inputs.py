"""What a model is given for a batch: tokens, masks, positions and, if it takes them, images.

A batch may be packed into one row without padding, in which a prompt appears once for its
completions:

    [ prompt 1 | prompt 2 | completion 1 | completion 2 | ... ]

Everything that a model computes per token skips padding and copies of a prompt. Only attention has
to know which tokens belong together: prompts and completions are two calls of torch's attention,
under the name that the model uses anyway, `sdpa`. Gradients are exact.

A rank whose batch has no image would not run the vision tower. Where the other ranks wait for it
in there (ZeRO-3 gathers each layer from all ranks; a trained tower adds its gradients up over all
ranks), such a batch gets a companion: one more row, of a single blank image. Its logits are
dropped, so that it adds nothing to any gradient, and the tower has run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from grpo_doctor_trainer.data.experience import ImageFeatures, TokenBatch
from grpo_doctor_trainer.model.vision import VisionLayout

IMPLEMENTATION = "sdpa"
"""The only attention of transformers that takes a layout."""
ARGUMENT = "shared_prompts"
"""The model's argument that carries the layout."""
_UNKNOWN = ("sliding_window", "softcap", "s_aux", "position_bias")


def install() -> None:
    """Have transformers' `sdpa` look for a layout; once is enough, twice does no harm."""
    before = ALL_ATTENTION_FUNCTIONS[IMPLEMENTATION]
    if not hasattr(before, "without_layout"):
        ALL_ATTENTION_FUNCTIONS[IMPLEMENTATION] = _looking_for_layout(before)


def _looking_for_layout(before: Callable[..., Any]) -> Callable[..., Any]:
    def attention(
        module: Any, query: torch.Tensor, *tensors: Any, **options: Any
    ) -> tuple[torch.Tensor, None]:
        packing = options.pop(ARGUMENT, None)
        if packing is None or not _causal(module, options):  # such as that of a vision tower
            result: tuple[torch.Tensor, None] = before(module, query, *tensors, **options)
            return result
        for name in _UNKNOWN:
            if options.get(name) is not None:
                raise ValueError(f"a layer of the model uses {name}")
        key, value, *_ = tensors
        settings = {"dropout_p": options.get("dropout", 0.0), "scale": options.get("scaling")}
        return _packed_attention(packing, query, key, value, settings), None

    attention.without_layout = before  # type: ignore[attr-defined]
    return attention


def _causal(module: Any, options: dict[str, Any]) -> bool:
    choice = options.get("is_causal")
    return bool(getattr(module, "is_causal", True) if choice is None else choice)


def _packed_attention(
    packing: Packing, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, settings: Any
) -> torch.Tensor:
    """Return [1, tokens, heads, width of a head] of [1, heads, tokens, width of a head]."""
    first = len(packing.prompts.flat)
    queries, keys, values = (tensor[0] for tensor in (query, key, value))
    prompt_keys = packing.prompts.spread(keys[:, :first])
    prompt_values = packing.prompts.spread(values[:, :first])
    of_prompts = scaled_dot_product_attention(
        packing.prompts.spread(queries[:, :first]),
        _repeated(prompt_keys, len(queries)),
        _repeated(prompt_values, len(queries)),
        is_causal=True,
        **settings,
    )
    result = packing.prompts.gathered(of_prompts)
    if queries.size(1) > first:
        own_keys = packing.completions.spread(keys[:, first:])
        own_values = packing.completions.spread(values[:, first:])
        of_completions = scaled_dot_product_attention(
            packing.completions.spread(queries[:, first:]),
            _repeated(torch.cat([prompt_keys[packing.prompt_of], own_keys], dim=2), len(queries)),
            _repeated(
                torch.cat([prompt_values[packing.prompt_of], own_values], dim=2), len(queries)
            ),
            attn_mask=packing.visible,
            **settings,
        )
        result = torch.cat([result, packing.completions.gathered(of_completions)])
    return result.unsqueeze(0)


def _repeated(tensor: torch.Tensor, heads: int) -> torch.Tensor:
    """Give each query head its keys or values, which several share."""
    return tensor.repeat_interleave(heads // tensor.size(1), dim=1)


@dataclass(frozen=True)
class Segments:
    """Texts of different lengths, one after the other.

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
        """Line texts up."""
        width = int(lengths.max()) if len(lengths) else 0
        filled = torch.arange(width) < lengths.unsqueeze(1)
        places = (filled.flatten().cumsum(0) - 1).clamp(min=0).view_as(filled)
        flat = filled.flatten().nonzero().squeeze(1)
        padded = len(flat) < filled.numel()
        return cls(filled.to(device), places.to(device), flat.to(device), padded)

    def spread(self, values: torch.Tensor) -> torch.Tensor:
        """Turn [heads, tokens, width of a head] into [texts, heads, longest, width of a head]."""
        if self.padded:
            values = values.index_select(1, self.places.flatten())
        rows, width = self.places.shape
        return values.view(len(values), rows, width, -1).transpose(0, 1)

    def gathered(self, values: torch.Tensor) -> torch.Tensor:
        """Turn [texts, heads, longest, width of a head] into [tokens, heads, width of a head]."""
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
        """Put a value of each predicted token where the token is, 0 elsewhere."""
        places = values.new_zeros(like.numel()).index_copy(0, self.predicted, values)
        return places.view_as(like)


def pack(batch: TokenBatch, *, companion: bool = False) -> Packing | None:
    """Find prompts that are equal, whatever completions of a group the batch has.

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
