"""The cells of the matrix: where weights are, how rollouts are made, what is trained on what."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

ROLLOUTS = ("transformers", "colocate", "server")
ENGINES = ("zero0", "zero2", "zero3", "zero3_offload")
TRAIN_TYPES = ("lora", "full")
INPUTS = ("text", "vl")


@dataclass(frozen=True)
class Cell:
    """One combination of the four choices that change which code runs."""

    rollout: str
    engine: str
    train_type: str
    inputs: str

    @property
    def name(self) -> str:
        return f"{self.rollout}-{self.engine}-{self.train_type}-{self.inputs}"

    def flags(self) -> tuple[str, ...]:
        """The flags that make the cell."""
        model = ("--model", "embedded-vl") if self.inputs == "vl" else ()
        vllm = (
            ()
            if self.rollout == "transformers"
            else ("--use_vllm", "true", "--vllm_mode", self.rollout)
        )
        return (*model, *vllm, "--deepspeed", self.engine, "--train_type", self.train_type)


CELLS = tuple(Cell(*choice) for choice in product(ROLLOUTS, ENGINES, TRAIN_TYPES, INPUTS))
