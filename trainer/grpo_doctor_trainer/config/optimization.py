"""Batch, loss, optimizer and length of the run."""

from __future__ import annotations

from dataclasses import dataclass

from grpo_doctor_trainer.config.option import option


@dataclass(frozen=True)
class OptimizationOptions:
    """Batch, loss, optimizer and length of the run."""

    # -- batch
    per_device_train_batch_size: int = option(
        1, "batch", "completions per rank in one forward and backward pass", embedded=512
    )
    gradient_accumulation_steps: int = option(1, "batch", "passes per optimizer step")
    steps_per_generation: int | None = option(
        None, "batch", "passes fed by one rollout; none: --gradient_accumulation_steps"
    )
    num_iterations: int = option(1, "batch", "times each rollout is trained on")
    group_by_length: bool = option(
        False, "batch", "put completions of like length into one pass, which saves padding"
    )

    # -- loss
    beta: float = option(0.04, "loss", "weight of the KL term; 0: no reference model", embedded=0.1)
    epsilon: float = option(0.2, "loss", "clipping of the probability ratio, downwards")
    epsilon_high: float | None = option(None, "loss", "clipping upwards; none: --epsilon")
    loss_type: str = option(
        "grpo",
        "loss",
        "grpo: mean over tokens, then over completions; bnpo: mean over all tokens of the batch; "
        "dr_grpo: sum over tokens / --max_completion_length; dapo: mean over all tokens of the "
        "optimizer step on all ranks",
        choices=("grpo", "bnpo", "dr_grpo", "dapo"),
    )
    mask_truncated_completions: bool = option(
        False, "loss", "leave completions that hit --max_completion_length out of the loss"
    )

    # -- optimizer
    learning_rate: float = option(1e-6, "optimizer", "peak learning rate of AdamW", embedded=3e-3)
    lr_scheduler_type: str = option(
        "cosine",
        "optimizer",
        "learning rate after the warm-up",
        choices=("constant", "linear", "cosine"),
        embedded="constant",
    )
    warmup_ratio: float = option(0.05, "optimizer", "share of the steps that warm up", embedded=0.0)
    warmup_steps: int = option(0, "optimizer", "steps that warm up; overrides --warmup_ratio")
    weight_decay: float = option(0.1, "optimizer", "weight decay of AdamW", embedded=0.0)
    max_grad_norm: float = option(1.0, "optimizer", "gradient clipping; 0: off")

    # -- length
    max_steps: int = option(
        -1, "length", "optimizer steps; -1: from --num_train_epochs", embedded=80
    )
    num_train_epochs: float = option(1.0, "length", "passes over the dataset, without --max_steps")
    seed: int = option(42, "length", "seed of data order and sampling")
