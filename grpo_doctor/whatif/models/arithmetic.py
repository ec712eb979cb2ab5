"""Multiplications of a forward pass, counted from the sizes of a standard decoder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """Of one token: in the layers' weights, in the head's, and in attention per token of width."""

    layers: int
    head: int
    attention: int

    @property
    def attention_share(self) -> float:
        """What attention costs next to all weights, per token of width."""
        return self.attention / (self.layers + self.head)

    def layers_share(self, width: float) -> float:
        """The layers' part of a pass over sequences of so many tokens, attention included."""
        layers = self.layers + self.attention * width
        return layers / (layers + self.head)


def arithmetic_of(config: Mapping[str, Any]) -> Arithmetic | None:
    """From a run's configuration; None where it does not say how large the model is.

    Each layer has four matrices for attention and three beyond it. Attention multiplies a token's
    query with the keys before it, and its weights with their values, `hidden` each: with half of
    the sequence, as tokens average. Kernels that are given a mask do the other half too.
    """
    names = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers")
    sizes = [config.get(f"model_{name}") for name in names]
    if not all(isinstance(size, int) and size > 0 for size in sizes):
        return None
    vocabulary, hidden, inner, layers = (int(str(size)) for size in sizes)
    return Arithmetic(
        layers=layers * (4 * hidden * hidden + 3 * hidden * inner),
        head=vocabulary * hidden,
        attention=layers * hidden,
    )
