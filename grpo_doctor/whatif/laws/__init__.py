"""What settings do to a step's work, one module per family; `LAWS` has all of them."""

from __future__ import annotations

from collections.abc import Mapping

from grpo_doctor.whatif.laws import (
    batch,
    checkpoint,
    engine,
    images,
    loading,
    logprob,
    offload,
    padding,
    recompute,
    reward,
    rollout,
    sync,
    zero,
)
from grpo_doctor.whatif.laws.law import Case, Effect, Law, UnsupportedError, knob

__all__ = [
    "BY_KNOB",
    "LAWS",
    "NONE_IS_A_VALUE",
    "Case",
    "Effect",
    "Law",
    "UnsupportedError",
    "knob",
]

LAWS: tuple[Law, ...] = tuple(
    law
    for family in (
        offload, zero, engine, sync, loading, images, reward, rollout, logprob, batch, padding,
        recompute, checkpoint,
    )
    for law in family.LAWS
)  # fmt: skip
# Unset, a sync is not cut into parts.
NONE_IS_A_VALUE = frozenset({"sync.move_model_batches"})
BY_KNOB: Mapping[str, Law] = {name: law for law in LAWS for name in law.knobs}
