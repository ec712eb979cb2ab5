"""The root causes that are known: one module per family, each proposing candidates."""

from __future__ import annotations

from grpo_doctor.hang.causes import (
    blocked_io,
    child_processes,
    collectives,
    cpu,
    data_loader,
    file_locks,
    gpu_fault,
    group_order,
    memory,
    missing_ranks,
    network,
    process_state,
    ras,
    ray_tasks,
    rollout_engine,
    storage,
    thread_locks,
    unrecorded_calls,
)
from grpo_doctor.hang.causes.candidate import Candidate, Case, Cause

CAUSES: tuple[Cause, ...] = (
    process_state.propose,
    missing_ranks.propose,
    memory.propose,
    gpu_fault.propose,
    collectives.propose,
    group_order.propose,
    unrecorded_calls.propose,
    network.propose,
    ras.propose,
    thread_locks.propose,
    file_locks.propose,
    child_processes.propose,
    data_loader.propose,
    storage.propose,
    rollout_engine.propose,
    cpu.propose,
    blocked_io.propose,
    ray_tasks.propose,
)

__all__ = ["CAUSES", "Candidate", "Case"]
