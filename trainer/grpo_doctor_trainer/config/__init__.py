"""Every option of the trainer, once: name, type, default, help and group.

The names and, for a real model, the defaults are ms-swift's (`swift rlhf --rlhf_type grpo`), so
that a launch line can be carried over; what ms-swift does not have is called as in TRL. The command
line is made from these classes (`flags.py`), in the order of the bases below.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from grpo_doctor_trainer.config.rollout import RewardOptions, RolloutOptions, VllmOptions
from grpo_doctor_trainer.config.training import (
    BatchOptions,
    DataOptions,
    DistributionOptions,
    EvaluationOptions,
    LengthOptions,
    LossOptions,
    ModelOptions,
    OptimizerOptions,
    OutputOptions,
)

EMBEDDED_VL = "embedded-vl"
"""The value of `--model` that asks for the embedded tiny vision-language model."""


# dataclass takes fields from the last base first, and `--help` shows them in that order.
@dataclass(frozen=True)
class TrainerConfig(
    OutputOptions,
    EvaluationOptions,
    DistributionOptions,
    LengthOptions,
    OptimizerOptions,
    LossOptions,
    BatchOptions,
    VllmOptions,
    RolloutOptions,
    RewardOptions,
    DataOptions,
    ModelOptions,
):
    """The resolved options of one run."""

    @property
    def embedded(self) -> bool:
        """Whether the model is made on the spot, so that nothing is loaded."""
        return self.model in {None, EMBEDDED_VL}

    @property
    def colocated(self) -> bool:
        """Whether vLLM runs inside the ranks."""
        return self.use_vllm and self.vllm_mode == "colocate"

    @property
    def served(self) -> bool:
        """Whether vLLM runs as a server."""
        return self.use_vllm and self.vllm_mode == "server"

    @property
    def passes_per_generation(self) -> int:
        """Forward and backward passes fed by one rollout, for one iteration over it."""
        return self.steps_per_generation or self.gradient_accumulation_steps

    @property
    def steps_per_rollout(self) -> int:
        """Optimizer steps from one rollout to the next."""
        return self.passes_per_generation // self.gradient_accumulation_steps * self.num_iterations

    @property
    def completions_per_rank(self) -> int:
        """Completions of one rollout on each rank."""
        return self.per_device_train_batch_size * self.passes_per_generation

    @property
    def off_policy(self) -> bool:
        """Whether the weights change between a rollout and the last step trained on it."""
        return self.steps_per_rollout > 1

    @property
    def groups_prompts(self) -> bool:
        """Whether the passes of a step are cut so that completions of a prompt stay together.

        `bnpo` is a mean over each pass, so its loss would be another one.
        """
        return self.share_prompts and self.loss_type != "bnpo"

    @property
    def weights(self) -> list[float]:
        """The weight of each reward function."""
        return self.reward_weights or [1.0] * len(self.reward_funcs)

    def learning_rate_at(self, number: int, steps: int) -> float:
        """Return the learning rate of an optimizer step: a linear warm-up, then the rest."""
        warmup = self.warmup_steps or math.ceil(self.warmup_ratio * steps)
        if number <= warmup:
            return self.learning_rate * number / warmup
        progress = (number - 1 - warmup) / max(1, steps - warmup)
        factor = {
            "constant": 1.0,
            "linear": 1 - progress,
            "cosine": (1 + math.cos(math.pi * progress)) / 2,
        }[self.lr_scheduler_type]
        return self.learning_rate * factor
