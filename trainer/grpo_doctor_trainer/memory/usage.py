"""What the CUDA allocator went through, for the recorder."""

from __future__ import annotations

import torch

from grpo_doctor_probes import counter


def report_memory(device: torch.device) -> None:
    """Records the allocator's counts of this process, after a step; nothing on a CPU.

    `memory/alloc_retries` are the times, since the start, at which an allocation failed and was
    tried again after all cached memory had been given back to the device; `memory/reserved_peak`
    and `memory/allocated_peak` are the largest sizes in bytes since the start.
    """
    if device.type != "cuda":
        return
    found = torch.cuda.memory_stats(device)
    counter("memory/alloc_retries", float(found.get("num_alloc_retries", 0)))
    counter("memory/reserved_peak", float(found.get("reserved_bytes.all.peak", 0)))
    counter("memory/allocated_peak", float(found.get("allocated_bytes.all.peak", 0)))
