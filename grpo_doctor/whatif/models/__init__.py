"""What settings do to a step's work, one module per family; `MODELS` has all of them."""

from __future__ import annotations

from collections.abc import Mapping

from grpo_doctor.whatif.models import (
    batch,
    checkpoint,
    engine,
    images,
    loading,
    logprob,
    offload,
    recompute,
    reward,
    rollout,
    sync,
)
from grpo_doctor.whatif.models.cost_model import CostModel

MODELS: tuple[CostModel, ...] = tuple(
    cost_model
    for family in (
        offload, engine, sync, loading, images, reward, rollout, logprob, batch, recompute,
        checkpoint,
    )
    for cost_model in family.MODELS
)  # fmt: skip
# Unset, a sync is not cut into parts.
NONE_IS_A_VALUE = frozenset({"sync.move_model_batches"})
BY_KNOB: Mapping[str, CostModel] = {
    name: cost_model for cost_model in MODELS for name in cost_model.knobs
}
