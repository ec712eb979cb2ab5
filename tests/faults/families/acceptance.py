"""Plain `torchrun` jobs without any preparation, looked at by `grpo-doctor attach` alone."""

from __future__ import annotations

from dataclasses import replace

from tests.faults.registry import FAULTS

NAMES = (
    "sleep in the reward",
    "reward server never answers",
    "a child that never ends",
    "locks taken in opposite orders",
    "SIGSTOP in update",
    "frozen control group",
    "another operation",
    "two groups in swapped order",
    "a FIFO that nobody writes",
    "DataLoader worker reads a hung file",
    "engine core killed, its front lives",
    "endless loop in the update",
)
for _fault in NAMES:
    _name = f"torchrun: {_fault}"
    FAULTS[_name] = replace(
        FAULTS[_fault], name=_name, family="acceptance", launch="torchrun", no_arguments=True
    )
