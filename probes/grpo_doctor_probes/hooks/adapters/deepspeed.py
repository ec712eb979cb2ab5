"""DeepSpeed's engine. accelerate runs its optimizer step inside `backward`."""

from __future__ import annotations

from grpo_doctor_probes.hooks.table import Adapter, Hook

ADAPTER = Adapter(
    "deepspeed",
    (
        Hook("deepspeed.runtime.engine", "DeepSpeedEngine.backward", "train/backward", "0.10-"),
        Hook("deepspeed.runtime.engine", "DeepSpeedEngine.step", "optimizer", "0.10-"),
        Hook("deepspeed.runtime.engine", "DeepSpeedEngine.save_checkpoint", "checkpoint", "0.10-"),
    ),
)
