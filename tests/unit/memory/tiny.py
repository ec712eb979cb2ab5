"""A model small enough to work out its memory by hand."""

from __future__ import annotations

from typing import get_args

from grpo_doctor.memory import ModelShape, Setup
from grpo_doctor.memory.models.shape import Experts, LatentAttention, Vision, VisionKind

TINY = ModelShape(
    "tiny",
    hidden=10,
    layers=4,
    heads=4,
    kv_heads=2,
    head_dim=5,
    intermediate=30,
    vocabulary=1000,
    tied=False,
    source="by hand",
)
"""20 outputs of all query heads, 10 of all key heads."""
EXPERTS = Experts(layers=4, count=8, active=2, intermediate=6, shared_intermediate=3)
LATENT = LatentAttention(query_rank=0, cache_rank=7, plain_dim=4, rotary_dim=3, value_dim=5)
KINDS: tuple[VisionKind, ...] = get_args(VisionKind)
ALONE = Setup(TINY, 1 << 30, prompt_tokens=1000, packing=True, loss="none")
"""One row of 1000 tokens, and no loss to speak of."""


def tower(kind: VisionKind = "qwen2_vl") -> Vision:
    """A token of it is four patches of 2 x 2 pixels."""
    return Vision(kind, hidden=4, layers=3, intermediate=8, patch=2, merge=2, temporal_patch=2)
