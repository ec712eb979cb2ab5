"""Attention over a row of prompts and completions: each completion looks at its own prompt.

Prompts and completions are two calls of torch's attention. The keys and values of a prompt are
computed once, and its completions' gradients add up in them, so gradients are exact.

transformers looks its attention up by name, and models hand it what they do not know themselves;
under the name that the model uses anyway, `sdpa`, stands then a function which looks for the
layout, and without one does what stood there before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

if TYPE_CHECKING:
    from collections.abc import Callable

    from grpo_doctor_trainer.algorithm.packing import Packing

IMPLEMENTATION = "sdpa"
"""The only attention of transformers that can be told a layout."""
ARGUMENT = "shared_prompts"
"""The model's argument that carries the layout."""
_UNKNOWN = ("sliding_window", "softcap", "s_aux", "position_bias")


class SharedAttentionError(ValueError):
    """A layer asks for more than this attention knows."""


def install() -> None:
    """Has transformers' `sdpa` look for a layout; once is enough, twice does no harm."""
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
    """Gives [1, tokens, heads, width of a head] of [1, heads, tokens, width of a head]."""
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
    """Gives each query head its keys or values, which several share."""
    return tensor.repeat_interleave(heads // tensor.size(1), dim=1)
