"""What an agent may answer: a cause in words that belong to no tool, and its key."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from grpo_doctor.hang.catalogue import CLASSES

# The classes of a stuck job are the fields' own (docs/hang.md); the others are these.
STUCK = {row.name: row.means for row in CLASSES}
SLOW = {
    "one-rank": "one rank takes longer than the others, which wait for it",
    "reward": "the reward function takes much of each step",
    "rewards-in-turn": "several reward functions run one after the other",
    "loading": "ranks wait for the data loader, which has too few processes",
    "hiccups": "now and then a call of the reward takes many times as long as usual",
    "recomputation": "gradient checkpointing computes activations twice, without need",
    "sharding": "ZeRO-3 shards weights that would fit whole",
    "checkpoints": "checkpoints are written too often",
    "garbage": "Python's garbage collection stops the ranks",
    "other-programs": "other programs use the CPU cores",
}
UNLEARNING = {
    "equal-rewards": "all completions of a prompt get the same reward",
    "missing-rewards": "completions have no reward",
    "cut-off": "completions are cut off at the length limit",
    "large-steps": "the learning rate is too high: the policy collapses or runs away",
    "paid-length": "the reward grows with length alone",
    "dominated": "one of several rewards drowns the others",
}
TOO_LARGE = {
    "states": "each GPU holds whole weights, gradients or optimizer states",
    "activations": "activations are kept for the backward pass",
    "logits": "logits of one micro-batch",
    "gathered": "the whole model's weights are gathered on each GPU to generate",
    "engine": "the rollout engine holds its share while the model is trained",
}
MENU = {"stuck": STUCK, "slow": SLOW, "not learning": UNLEARNING, "not fitting": TOO_LARGE}

_OF_RULE = {
    "GD004": "one-rank", "GD035": "one-rank", "GD033": "reward", "GD034": "rewards-in-turn",
    "GD002": "loading", "GD036": "hiccups", "GD041": "recomputation", "GD039": "sharding",
    "GD070": "checkpoints", "GD024": "garbage", "GD023": "other-programs",
    "GD050": "equal-rewards", "GD059": "equal-rewards", "GD058": "missing-rewards",
    "GD051": "cut-off", "GD052": "large-steps", "GD053": "large-steps", "GD055": "large-steps",
    "GD056": "paid-length", "GD057": "dominated",
}  # fmt: skip
_OF_ENTRY = {
    "optimizer moments": "states", "float32 master weights": "states", "gradients": "states",
    "trained weights": "states", "activations": "activations", "checkpoints": "activations",
    "logits": "logits", "logits and loss": "logits", "gathered for generation": "gathered",
    "engine weights": "engine", "engine cache and buffers": "engine",
}  # fmt: skip


def of_rules(rules: Iterable[str]) -> list[str]:
    """Causes of these rules of `report`, in their order."""
    return [_OF_RULE[rule] for rule in rules if rule in _OF_RULE]


def of_memory(memory: dict[str, Any]) -> str:
    """The cause that `check --json` implies: the largest entry of the peak of the worst pool."""
    pool = next((p for p in memory["pools"] if p["role"] == memory["worst"]), None)
    if pool is None or memory["state"] == "fits":
        return ""
    peak = next(phase for phase in pool["phases"] if phase["name"] == pool["peak_phase"])
    for entry in sorted(peak["entries"], key=lambda entry: -entry["bytes"]):
        if entry["name"] in _OF_ENTRY:
            return _OF_ENTRY[entry["name"]]
    return ""
