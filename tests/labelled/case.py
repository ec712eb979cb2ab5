"""What one labelled run is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Strength = Literal["", "weak", "medium", "strong"]

# Said of every run of a tiny model on a CPU, and true of it.
ALWAYS_FAIR = frozenset({"GD003", "GD005"})

# True of a run beside other programs, as the label of `other programs on the cores` says.
OF_BUSY_MACHINES = frozenset({"GD004", "GD023"})


@dataclass(frozen=True, slots=True)
class Case:
    """A run and its truth.

    Attributes:
        name: of the pathology, or `healthy: ...`.
        flags: of the bundled trainer, after `BASE`.
        has: rules of which at least one must fire; empty for a healthy run. What is the same
            illness under two names (a slow reward on one rank) is one of several.
        may: rules that may fire too: what follows from it, or is also true of this run.
        files: written beside the run, name to contents.
        picture_edge: of the photographs that are written beside it, pixels; 0: none.
        environment: of the ranks.
        load: processes that burn a core each meanwhile.
        ranks: how many.
    """

    name: str
    flags: tuple[str, ...] = ()
    strength: Strength = ""
    has: frozenset[str] = frozenset()
    may: frozenset[str] = frozenset()
    files: Mapping[str, str] = field(default_factory=dict)
    picture_edge: int = 0
    environment: Mapping[str, str] = field(default_factory=dict)
    load: int = 0
    ranks: int = 2

    @property
    def title(self) -> str:
        return f"{self.name} ({self.strength})" if self.strength else self.name


# The embedded model's own defaults, which a model from a folder does not get.
_AS_EMBEDDED = (
    "--train_type", "full", "--torch_dtype", "float32", "--gradient_checkpointing", "false",
    "--scale_rewards", "none", "--num_generations", "16", "--max_completion_length", "8",
    "--temperature", "1.0", "--beta", "0.1", "--lr_scheduler_type", "constant",
    "--warmup_ratio", "0", "--weight_decay", "0", "--deepspeed", "zero2", "--logging_steps", "1",
)  # fmt: skip
BASE = (
    *_AS_EMBEDDED, "--learning_rate", "0.001", "--max_steps", "16",
    "--per_device_train_batch_size", "64", "--save_steps", "0", "--dataloader_num_workers", "1",
    "--output_dir", "out",
)  # fmt: skip
# A model with random weights never ends a completion and learns at first in leaps: all runs start
# from one that has been trained for so long.
SCHOOLING = (
    "--max_steps", "240", "--per_device_train_batch_size", "128", "--save_steps", "240",
    "--save_only_model", "true", "--reward_funcs", "rewards.py:brief", "--output_dir", "out",
)  # fmt: skip
LEARNING = ("--max_steps", "40")


def flags_of(case: Case, model: str, seed: int | None = None) -> list[str]:
    """`BASE` with the case's flags in place of its own, for a model in a folder."""
    merged: dict[str, list[str]] = {}
    seeded = () if seed is None else ("--seed", str(seed))
    for word in ("--model", model, *BASE, *seeded, *case.flags):
        if word.startswith("--"):
            current = merged[word] = []
        else:
            current.append(word)
    return [word for name, values in merged.items() for word in (name, *values)]
