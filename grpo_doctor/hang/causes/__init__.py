"""The root causes that are known: one module per family, each proposing candidates."""

from __future__ import annotations

from grpo_doctor.hang.causes import (
    channels,
    children,
    compute,
    engines,
    groups,
    hardware,
    lifecycle,
    locks,
    memory,
    missing,
    pairs,
    storage,
)
from grpo_doctor.hang.causes.candidate import Candidate, Case, Cause

CAUSES: tuple[Cause, ...] = (
    lifecycle.propose,
    missing.propose,
    memory.propose,
    hardware.propose,
    groups.propose,
    pairs.propose,
    locks.propose,
    children.propose,
    storage.propose,
    engines.propose,
    compute.propose,
    channels.propose,
)

__all__ = ["CAUSES", "Candidate", "Case"]
