"""What models are made of: from a config.json, a cache on this machine, or the shipped table."""

from __future__ import annotations

from grpo_doctor.memory.models.config import UnknownShapeError, shape_of
from grpo_doctor.memory.models.find import UnknownModelError, model_shape, published, quantized_bits
from grpo_doctor.memory.models.shape import ModelShape

__all__ = [
    "ModelShape", "UnknownModelError", "UnknownShapeError", "model_shape", "published",
    "quantized_bits", "shape_of",
]  # fmt: skip
