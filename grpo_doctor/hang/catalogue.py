"""The classes of a verdict: what each means, what it looks like, what to do. docs/hang.md is made
from this table.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Class:
    """A class of verdict. All but `name` are sentences for the user."""

    name: str
    means: str
    looks_like: str
    what_to_do: str


CLASSES: tuple[Class, ...] = tuple(
    Class(name, "", "", "")
    for name in (
        "rank-stopped",
        "rank-dead",
        "rank-missing",
        "oom-killed",
        "collective-mismatch",
        "collective-skipped",
        "group-order-cycle",
        "p2p-unmatched",
        "weight-sync-blocked",
        "reward-blocked",
        "reward-busy",
        "dataload-blocked",
        "storage-blocked",
        "rollout-engine-dead",
        "rollout-engine-stalled",
        "thread-deadlock",
        "gil-held",
        "lock-held",
        "child-stuck",
        "cpu-starved",
        "network-silent",
        "gpu-fault",
        "user-code-blocked",
        "user-code-busy",
        "unknown",
    )
)
BY_NAME = {one.name: one for one in CLASSES}
