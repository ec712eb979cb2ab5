"""Packs a batch into one row without padding, in which a prompt appears once for its completions.

    [ prompt 1 | prompt 2 | completion 1 | completion 2 | ... ]

Everything that a model computes per token skips padding and copies of a prompt. Only attention has
to know which tokens belong together: prompts and completions are two calls of torch's attention,
under the name that the model uses anyway, `sdpa`. Gradients are exact."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from grpo_doctor_trainer.data.experience import TokenBatch

IMPLEMENTATION = "sdpa"
"""The only attention of transformers that takes a layout."""
ARGUMENT = "shared_prompts"
"""The model's argument that carries the layout."""
_UNKNOWN = ("sliding_window", "softcap", "s_aux", "position_bias")


class SharedAttentionError(ValueError):
    """A layer asks for more than this attention knows."""


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
                raise SharedAttentionError(f"a layer of the model uses {name}")
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
