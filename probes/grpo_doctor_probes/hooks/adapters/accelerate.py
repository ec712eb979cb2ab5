"""accelerate, which most trainers call for the backward pass and the optimizer."""

from __future__ import annotations

from grpo_doctor_probes.hooks.table import Adapter, Hook

ADAPTER = Adapter(
    "accelerate",
    (
        Hook("accelerate.accelerator", "Accelerator.backward", "train/backward", "0.20-"),
        Hook("accelerate.accelerator", "Accelerator.clip_grad_norm_", "optimizer/clip", "0.20-"),
        Hook("accelerate.optimizer", "AcceleratedOptimizer.step", "optimizer", "0.20-"),
        Hook("accelerate.scheduler", "AcceleratedScheduler.step", "optimizer/schedule", "0.20-"),
    ),
)
