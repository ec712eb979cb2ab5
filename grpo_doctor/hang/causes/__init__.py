"""The root causes that are known: one module per family, each proposing candidates."""

from __future__ import annotations

from grpo_doctor.hang.causes import (
    channels,
    children,
    compute,
    created,
    devices,
    engines,
    file_locks,
    gil,
    groups,
    hardware,
    hosts,
    kernel,
    lifecycle,
    loaders,
    locks,
    memory,
    missing,
    pairs,
    ras,
    rooted,
    storage,
    tasks,
    ways,
)
from grpo_doctor.hang.causes.candidate import Candidate, Case, Cause

CAUSES: tuple[Cause, ...] = (
    lifecycle.propose,
    missing.propose,
    hosts.propose,
    memory.propose,
    hardware.propose,
    devices.propose,
    groups.propose,
    created.propose,
    rooted.propose,
    ways.propose,
    ras.propose,
    pairs.propose,
    gil.propose,
    locks.propose,
    file_locks.propose,
    children.propose,
    loaders.propose,
    storage.propose,
    kernel.propose,
    engines.propose,
    compute.propose,
    channels.propose,
    tasks.propose,
)

__all__ = ["CAUSES", "Candidate", "Case"]
