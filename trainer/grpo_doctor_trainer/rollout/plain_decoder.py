"""The next token's logits from a decoder of the common kind, without the model's own Python.

A model's forward pass makes masks, positions and rotary tables again for each token, repeats keys
and values for the heads that share them, and hands everything through its wrappers: with a small
model more than half of a token's time. Here all that is made once per rollout. Weights are used
through their own modules, so that adapters count.

Models differ in more than their attributes say: `decoding.plain_parts` asks each both ways, once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.functional import scaled_dot_product_attention

from grpo_doctor_trainer.algorithm.head import changes_logits
from grpo_doctor_trainer.model.adapters import base_model
from grpo_doctor_trainer.rollout.next_token import RoomyLayer

if TYPE_CHECKING:
    from collections.abc import Callable

    from transformers.cache_utils import Cache

# Rotary embeddings whose frequencies depend on how long the sequence is.
_CHANGING_ROTARY = ("dynamic", "longrope")


class NotPlainError(Exception):
    """The model is of another kind; the message goes behind "because"."""


@dataclass(frozen=True)
class _Layer:
    """A layer's modules; of its attention, the norms of single heads or none."""

    first_norm: Callable[[torch.Tensor], torch.Tensor]
    attention: Any
    head_norms: tuple[Any, Any] | None
    second_norm: Callable[[torch.Tensor], torch.Tensor]
    mlp: Any

    @classmethod
    def of(cls, layer: Any) -> _Layer:
        attention = layer.self_attn
        norms = getattr(attention, "q_norm", None), getattr(attention, "k_norm", None)
        return cls(
            _norm(layer.input_layernorm),
            attention,
            None if norms == (None, None) else norms,
            _norm(layer.post_attention_layernorm),
            layer.mlp,
        )


@dataclass(frozen=True)
class PlainDecoder:
    """The parts of a model that is a plain decoder."""

    embedding: Any
    rotary: Any
    layers: tuple[_Layer, ...]
    norm: Callable[[torch.Tensor], torch.Tensor]
    head: Any

    @classmethod
    def of(cls, module: Any) -> PlainDecoder:
        """Takes a model apart.

        Raises:
            NotPlainError: it lacks a part, or its parts do more than they say.
        """
        base = base_model(module)
        try:
            decoder = base.get_decoder()
            head = base.get_output_embeddings()
            layers = tuple(_Layer.of(layer) for layer in decoder.layers)
            rotary = decoder.rotary_emb
            parts = cls(decoder.embed_tokens, rotary, layers, _norm(decoder.norm), head)
        except AttributeError as error:
            raise NotPlainError(f"its layers are of another kind ({error})") from error
        _check_settings(base.config.get_text_config(), parts)
        wrappers = [part for layer in decoder.layers for part in (layer, layer.self_attn)]
        for part in (base, decoder, *wrappers):
            if _attached(part):
                raise NotPlainError(f"something is attached to its {type(part).__name__}")
        return parts


def _check_settings(config: Any, parts: PlainDecoder) -> None:
    """Refuses what a few short sequences would not show."""
    kinds = set(getattr(config, "layer_types", None) or ())
    if kinds - {"full_attention"}:
        raise NotPlainError(f"it has layers of {', '.join(sorted(kinds - {'full_attention'}))}")
    if not kinds and getattr(config, "sliding_window", None):
        raise NotPlainError("its attention has a sliding window")
    rotary_type = getattr(parts.rotary, "rope_type", "default")
    if any(changing in rotary_type for changing in _CHANGING_ROTARY):
        raise NotPlainError(f"its rotary embedding is {rotary_type}")
    if changes_logits(config) or getattr(config, "attn_logit_softcapping", None):
        raise NotPlainError("it changes its logits or those of its attention")


def _norm(module: Any) -> Callable[[torch.Tensor], torch.Tensor]:
    """Gives torch's own function for a norm that it equals bit for bit, otherwise the norm."""
    weight, epsilon = getattr(module, "weight", None), getattr(module, "variance_epsilon", None)
    if weight is None or epsilon is None or _attached(module):
        return module  # type: ignore[no-any-return]

    def norm(hidden: torch.Tensor) -> torch.Tensor:
        return torch.rms_norm(hidden, module.weight.shape, module.weight, epsilon)

    values = torch.linspace(-3, 4, 4 * weight.numel(), device=weight.device, dtype=weight.dtype)
    values = values.view(4, -1)
    return norm if torch.equal(norm(values), module(values)) else module


def _attached(part: Any) -> bool:
    return bool(part._forward_hooks or part._forward_pre_hooks or "forward" in vars(part))  # noqa: SLF001


class PlainSteps:
    """The tokens of one rollout."""

    def __init__(
        self, parts: PlainDecoder, cache: Cache, mask: torch.Tensor, following: torch.Tensor
    ) -> None:
        """Makes what all tokens need.

        Args:
            parts: of the model.
            cache: of `RoomyLayer`s, with the keys and values of each row's prompt.
            mask: [rows, prompts and room for completions], 1 where there is a token or will be.
            following: [..., rows, 1], the position of the first token behind each prompt.
        """
        self._parts = parts
        self._layers = [layer for layer in cache.layers if isinstance(layer, RoomyLayer)]
        for layer in self._layers:
            layer.make_room()
        self._first = self._layers[0].get_seq_length()
        like = self._layers[0].keys
        behind = following.reshape(-1, len(mask))[0]
        lowest = int(behind.min())
        self._following = behind - lowest
        count = int(self._following.max()) + mask.size(1) - self._first
        every = torch.arange(lowest, lowest + count, device=mask.device)
        every = every.expand(*following.shape[:-2], 1, count)
        tables = (
            table.reshape(-1, count, table.size(-1))[0] for table in parts.rotary(like, every)
        )
        self._cosines, sines = tables
        # A head's halves are turned by each other, the first by minus the second.
        half = sines.size(1) // 2
        self._sines = torch.cat([-sines[:, :half], sines[:, half:]], dim=1)
        self._mask = None
        if not mask.all():
            hidden = mask.logical_not()[:, None, None, :]
            self._mask = torch.zeros_like(hidden, dtype=like.dtype).masked_fill_(hidden, -torch.inf)

    def keep(self, rows: torch.Tensor) -> None:
        """Takes some rows."""
        self._following = self._following[rows]
        self._mask = None if self._mask is None else self._mask[rows]
        for layer in self._layers:
            layer.buffers = [buffer[rows] for buffer in layer.buffers]

    @torch.inference_mode()  # spares each operation what only a backward pass needs
    def logits(self, tokens: torch.Tensor, index: int) -> torch.Tensor:
        """Reads a token for each row.

        Args:
            tokens: [rows].
            index: of the tokens among those of their sequences, prompts included.

        Returns:
            [rows, vocabulary], for the token behind it.
        """
        parts, count = self._parts, len(tokens)
        positions = self._following + (index - self._first)
        cosines = self._cosines[positions].unsqueeze(1)
        sines = self._sines[positions].unsqueeze(1)
        half = sines.size(2) // 2
        mask = None if self._mask is None else self._mask[..., : index + 1]
        hidden = parts.embedding(tokens.unsqueeze(1))
        for layer, cached in zip(parts.layers, self._layers, strict=True):
            attention, normed = layer.attention, layer.first_norm(hidden)
            keys, values = cached.buffers
            shape = (count, -1, keys.size(3))
            queries = attention.q_proj(normed).view(shape)
            key = attention.k_proj(normed).view(shape)
            if layer.head_norms is not None:
                queries, key = layer.head_norms[0](queries), layer.head_norms[1](key)
            turned = torch.cat([queries, key], dim=1)
            turned = turned * cosines + turned.roll(half, dims=2) * sines
            heads = queries.size(1)
            keys[:, :, index] = turned[:, heads:]
            values[:, :, index] = attention.v_proj(normed).view(shape)
            attended = scaled_dot_product_attention(
                # Heads that share keys and values as several queries of one: nothing is repeated.
                turned[:, :heads].unflatten(1, (keys.size(1), -1)),
                keys[:, :, : index + 1],
                values[:, :, : index + 1],
                attn_mask=mask,
                scale=attention.scaling,
            )
            hidden = hidden + attention.o_proj(attended.reshape(count, 1, -1))
            hidden = hidden + layer.mlp(layer.second_norm(hidden))
        logits: torch.Tensor = parts.head(parts.norm(hidden))
        return logits[:, 0]
