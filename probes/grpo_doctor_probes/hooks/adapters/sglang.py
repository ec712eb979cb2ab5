"""SGLang's engine where a trainer or a server holds it in its own process."""

from __future__ import annotations

from grpo_doctor_probes.hooks.table import Adapter, Hook
from grpo_doctor_probes.hooks.wrapping import shared

_ENGINE = "sglang.srt.entrypoints.engine"


ADAPTER = Adapter(
    "sglang",
    (
        Hook(_ENGINE, "Engine.generate", "rollout/generate", "0.4.6-"),
        Hook(_ENGINE, "Engine.release_memory_occupation", "offload", "0.4.6-"),
        Hook(_ENGINE, "Engine.resume_memory_occupation", "offload", "0.4.6-"),
        Hook(_ENGINE, "Engine.update_weights_from_tensor", "sync", "0.4.6-"),
        Hook(_ENGINE, "Engine.update_weights_from_distributed", "sync", "0.4.6-"),
        Hook(_ENGINE, "Engine.update_weights_from_disk", "sync", "0.4.6-"),
        Hook(_ENGINE, "Engine.update_weights_from_ipc", "sync", "0.5.9-"),
    ),
    {_ENGINE: {"Engine.async_generate": shared("rollout/generate")}},
)
