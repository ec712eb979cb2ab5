"""The root causes that are known: a module per family, a function per cause."""

from __future__ import annotations

from grpo_doctor.hang.causes.calls import group_order, mismatched_calls, unrecorded_calls
from grpo_doctor.hang.causes.candidate import Candidate, Case, Cause
from grpo_doctor.hang.causes.connections import blocked_io, silent_network
from grpo_doctor.hang.causes.engine import rollout_engine
from grpo_doctor.hang.causes.gpu import gpu_faults
from grpo_doctor.hang.causes.helpers import child_processes, data_loader, ray_tasks
from grpo_doctor.hang.causes.host import cpu, memory
from grpo_doctor.hang.causes.locks import file_locks, storage, thread_locks
from grpo_doctor.hang.causes.process import missing_ranks, unable_to_run

CAUSES: tuple[Cause, ...] = (
    unable_to_run,
    missing_ranks,
    memory,
    gpu_faults,
    mismatched_calls,
    group_order,
    unrecorded_calls,
    silent_network,
    thread_locks,
    file_locks,
    child_processes,
    data_loader,
    storage,
    rollout_engine,
    cpu,
    blocked_io,
    ray_tasks,
)

__all__ = ["CAUSES", "Candidate", "Case"]
