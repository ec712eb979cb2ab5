"""The phases of a GRPO step: the only ones, in the order in which reports list them."""

from __future__ import annotations

PHASES = (
    "init",
    "dataload",
    "rollout",
    "reward",
    "logprob",
    "train",
    "optimizer",
    "sync",
    "offload",
    "checkpoint",
    "eval",
)
UNATTRIBUTED = "unattributed"


def phase_of(name: str) -> str | None:
    """The phase that a span's name belongs to: `rollout/generate` is `rollout`; None for others."""
    root = name.partition("/")[0]
    return root if root in PHASES else None
