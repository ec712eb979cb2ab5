"""Every option of the trainer, once: name, type, default, help and group.

The names and, for a real model, the defaults are ms-swift's (`swift rlhf --rlhf_type grpo`), so
that a launch line can be carried over. The command line is made from this class (`flags.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

_T = TypeVar("_T")


def option(
    default: _T,
    group: str,
    text: str,
    *,
    choices: tuple[str, ...] = (),
    embedded: Any = None,
) -> _T:
    """Declares one option.

    Args:
        default: its value when a `--model` is given.
        group: its heading in `--help`.
        text: its help.
        choices: the only valid values, when there are few.
        embedded: its default with the embedded tiny model, where that differs.
    """
    metadata = {"group": group, "help": text, "choices": choices, "embedded": embedded}
    if isinstance(default, list):
        values = list(default)
        return cast("_T", field(default_factory=lambda: list(values), metadata=metadata))
    return field(default=default, metadata=metadata)


@dataclass(frozen=True)
class TrainerConfig:
    """The resolved options of one run."""

    # -- model
    model: str | None = option(
        None, "model", "Hugging Face name or local folder; none: an embedded tiny random Qwen2"
    )
    train_type: str = option(
        "lora",
        "model",
        "train LoRA adapters or all weights",
        choices=("lora", "full"),
        embedded="full",
    )
    lora_rank: int = option(8, "model", "rank of the LoRA adapters")
    lora_alpha: int = option(32, "model", "scale of the LoRA adapters")
    torch_dtype: str = option(
        "auto",
        "model",
        "dtype of the weights; auto: bfloat16 on GPU, float32 on CPU",
        choices=("auto", "float32", "bfloat16", "float16"),
        embedded="float32",
    )
    gradient_checkpointing: bool = option(
        True, "model", "recompute activations in the backward pass to save memory", embedded=False
    )

    # -- data
    dataset: list[str] = option(
        [],
        "data",
        "local .jsonl/.json/.parquet files or Hugging Face names, each with an optional #N to "
        "sample N rows; none: generated arithmetic",
    )
    max_length: int = option(2048, "data", "longest prompt in tokens; longer ones lose their start")
    dataloader_num_workers: int = option(1, "data", "processes that tokenize ahead; 0: none")
    dataloader_prefetch_factor: int = option(2, "data", "batches each worker prepares ahead")

    # -- rewards
    reward_funcs: list[str] = option(
        [],
        "rewards",
        "accuracy, format, arithmetic, or path/to/file.py:function; "
        "none: accuracy, with arithmetic for generated arithmetic",
    )
    reward_weights: list[float] = option(
        [], "rewards", "one weight per reward function; none: 1 each"
    )
    scale_rewards: str = option(
        "group",
        "rewards",
        "what divides the advantages: the reward's standard deviation in its group, in the whole "
        "batch, or nothing",
        choices=("group", "batch", "none"),
        embedded="none",
    )

    # -- rollout
    num_generations: int = option(
        8, "rollout", "completions per prompt, the group of GRPO", embedded=16
    )
    max_completion_length: int = option(512, "rollout", "longest completion in tokens", embedded=8)
    temperature: float = option(0.9, "rollout", "sampling temperature", embedded=1.0)
    top_p: float = option(1.0, "rollout", "nucleus sampling; 1: off")
    top_k: int = option(-1, "rollout", "sample from the k likeliest tokens; -1: from all")
    use_vllm: bool = option(False, "rollout", "roll out with vLLM instead of transformers")
    ds3_gather_for_generation: bool = option(
        True,
        "rollout",
        "ZeRO-3: gather all weights once per rollout; false: layer by layer for each token, slow, "
        "for models that do not fit",
    )
    offload_model: bool = option(
        False, "rollout", "move weights the rollout does not need to host memory while it runs"
    )
    offload_optimizer: bool = option(
        False, "rollout", "move the optimizer state to host memory while the rollout runs"
    )
    gc_collect_after_offload: bool = option(
        False, "rollout", "collect garbage and empty the CUDA cache after each offload"
    )

    # -- batch
    per_device_train_batch_size: int = option(
        1, "batch", "completions per rank in one forward and backward pass", embedded=512
    )
    gradient_accumulation_steps: int = option(1, "batch", "passes per optimizer step")
    steps_per_generation: int | None = option(
        None, "batch", "passes fed by one rollout; none: --gradient_accumulation_steps"
    )
    num_iterations: int = option(1, "batch", "times each rollout is trained on")

    # -- loss
    beta: float = option(0.04, "loss", "weight of the KL term; 0: no reference model", embedded=0.1)
    epsilon: float = option(0.2, "loss", "clipping of the probability ratio, downwards")
    epsilon_high: float | None = option(None, "loss", "clipping upwards; none: --epsilon")
    loss_type: str = option(
        "grpo",
        "loss",
        "grpo: mean over tokens, then over completions; bnpo: mean over all tokens of the batch; "
        "dr_grpo: sum over tokens / --max_completion_length",
        choices=("grpo", "bnpo", "dr_grpo"),
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

    # -- length of the run
    max_steps: int = option(
        -1, "length", "optimizer steps; -1: from --num_train_epochs", embedded=80
    )
    num_train_epochs: float = option(1.0, "length", "passes over the dataset, without --max_steps")
    seed: int = option(42, "length", "seed of data order and sampling")

    # -- distribution
    deepspeed: str | None = option(
        None,
        "distribution",
        "zero0, zero1, zero2, zero3, zero2_offload, zero3_offload, or a DeepSpeed .json file; "
        "none: plain DDP",
        embedded="zero2",
    )
    ddp_timeout: int = option(1800, "distribution", "seconds until a stuck collective is an error")

    # -- output
    output_dir: str = option(
        "grpo-doctor-out/train", "output", "folder of checkpoints and completions"
    )
    save_steps: int = option(
        500, "output", "optimizer steps between checkpoints; 0: none", embedded=40
    )
    save_total_limit: int | None = option(
        None, "output", "checkpoints to keep; none: all", embedded=2
    )
    save_only_model: bool = option(False, "output", "leave the optimizer state out of checkpoints")
    logging_steps: int = option(5, "output", "optimizer steps between log lines", embedded=1)
    log_completions: bool = option(
        False, "output", "print a sample and write every completion to completions.jsonl"
    )
    report_to: str = option("none", "output", "experiment trackers", choices=("none",))

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
    def weights(self) -> list[float]:
        """The weight of each reward function."""
        return self.reward_weights or [1.0] * len(self.reward_funcs)
