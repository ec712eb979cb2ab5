"""What is trained, on what data, how, and what is written: one class per heading of `--help`."""

from __future__ import annotations

from dataclasses import dataclass

from grpo_doctor_trainer.config.option import Options, option

_WIDTH_STEP = 64  # four heads, each with a turn for an image's time, height and width
_LARGEST_SEED = 2**32 - 1  # NumPy's; torch's is larger, and each rank adds its number


@dataclass(frozen=True)
class ModelOptions(Options, heading="model"):
    """What is trained: the model, the parts of it, its dtype."""

    model: str | None = option(
        None,
        "Hugging Face name or local folder; none: an embedded tiny random Qwen2; "
        "embedded-vl: an embedded tiny random Qwen2.5-VL",
    )
    embedded_width: int = option(
        128,
        "embedded models: width of a layer, a multiple of 64; weights grow with its square",
        gt=0,
        multiple_of=_WIDTH_STEP,
    )
    train_type: str = option(
        "lora", "train LoRA adapters or all weights", choices=("lora", "full"), embedded="full"
    )
    lora_rank: int = option(8, "rank of the LoRA adapters", ge=1)
    lora_alpha: int = option(32, "scale of the LoRA adapters", ge=1)
    freeze_vit: bool = option(True, "vision-language: do not train the vision tower")
    freeze_aligner: bool = option(
        True, "vision-language: do not train what joins the tower to the language model"
    )
    freeze_llm: bool = option(False, "vision-language: do not train the language model")
    torch_dtype: str = option(
        "auto",
        "dtype of the weights; auto: bfloat16 on GPU, float32 on CPU",
        choices=("auto", "float32", "bfloat16", "float16"),
        embedded="float32",
    )
    gradient_checkpointing: bool = option(
        True, "recompute activations in the backward pass to save memory", embedded=False
    )


@dataclass(frozen=True)
class DataOptions(Options, heading="data"):
    """Datasets, prompts, images and the workers that prepare them."""

    dataset: list[str] = option(
        [],
        "local .jsonl/.json/.parquet files or Hugging Face names, each with an optional #N to "
        "sample N rows; none: generated arithmetic",
    )
    max_length: int = option(2048, "longest prompt in tokens; longer ones lose their start", ge=1)
    max_pixels: int | None = option(
        None,
        "vision-language: largest area of an image in pixels, larger ones are scaled down; none: "
        "the variable MAX_PIXELS, else the model's own limit",
        ge=1,
    )
    dataloader_num_workers: int = option(1, "processes that tokenize ahead; 0: none", ge=0)
    dataloader_prefetch_factor: int = option(2, "batches each worker prepares ahead", ge=1)


@dataclass(frozen=True)
class BatchOptions(Options, heading="batch"):
    """What one optimizer step is made of."""

    per_device_train_batch_size: int = option(
        1, "completions per rank in one forward and backward pass", ge=1, embedded=512
    )
    gradient_accumulation_steps: int = option(1, "passes per optimizer step", ge=1)
    steps_per_generation: int | None = option(
        None, "passes fed by one rollout; none: --gradient_accumulation_steps"
    )
    num_iterations: int = option(1, "times each rollout is trained on", ge=1)
    group_by_length: bool = option(
        False, "put completions of like length into one pass, which saves padding"
    )
    share_prompts: bool = option(
        True,
        "compute a prompt once for its completions: in the rollout with transformers, and in each "
        "pass for those that are in it, without padding; "
        "false: each completion with its prompt, padded to the longest",
    )


@dataclass(frozen=True)
class LossOptions(Options, heading="loss"):
    """The loss, and what is left out of it."""

    beta: float = option(0.04, "weight of the KL term; 0: no reference model", ge=0, embedded=0.1)
    epsilon: float = option(0.2, "clipping of the probability ratio, downwards", gt=0)
    epsilon_high: float | None = option(None, "clipping upwards; none: --epsilon", gt=0)
    loss_type: str = option(
        "grpo",
        "grpo: mean over tokens, then over completions; bnpo: mean over all tokens of the batch; "
        "dr_grpo: sum over tokens / --max_completion_length; dapo: mean over all tokens of the "
        "optimizer step on all ranks",
        choices=("grpo", "bnpo", "dr_grpo", "dapo"),
    )
    mask_truncated_completions: bool = option(
        False, "leave completions that hit --max_completion_length out of the loss"
    )


@dataclass(frozen=True)
class OptimizerOptions(Options, heading="optimizer"):
    """The optimizer and its learning rate."""

    learning_rate: float = option(1e-6, "peak learning rate of AdamW", ge=0, embedded=3e-3)
    lr_scheduler_type: str = option(
        "cosine",
        "learning rate after the warm-up",
        choices=("constant", "linear", "cosine"),
        embedded="constant",
    )
    warmup_ratio: float = option(0.05, "share of the steps that warm up", ge=0, le=1, embedded=0.0)
    warmup_steps: int = option(0, "steps that warm up; overrides --warmup_ratio", ge=0)
    weight_decay: float = option(0.1, "weight decay of AdamW", ge=0, embedded=0.0)
    max_grad_norm: float = option(1.0, "gradient clipping; 0: off", ge=0)


@dataclass(frozen=True)
class LengthOptions(Options, heading="length"):
    """Length of the run, and its seed."""

    max_steps: int = option(
        -1,
        "optimizer steps; -1 or 0: from --num_train_epochs",
        ge=-1,
        embedded=80,
    )
    num_train_epochs: float = option(1.0, "passes over the dataset, without --max_steps", gt=0)
    seed: int = option(42, "seed of data order and sampling", ge=0, le=_LARGEST_SEED)


@dataclass(frozen=True)
class DistributionOptions(Options, heading="distribution"):
    """Distribution over ranks."""

    deepspeed: str | None = option(
        None,
        "zero0, zero1, zero2, zero3, zero2_offload, zero3_offload, or a DeepSpeed .json file; "
        "none: plain DDP",
        embedded="zero2",
    )
    ddp_timeout: int = option(1800, "seconds until a stuck collective is an error", ge=1)


@dataclass(frozen=True)
class EvaluationOptions(Options, heading="evaluation"):
    """Evaluation during training."""

    eval_steps: int = option(
        0,
        "optimizer steps between evaluations, which leave the run as it would be without them; "
        "the last step has one too, and the best checkpoint stays; 0: none",
        ge=0,
    )
    val_dataset: list[str] = option(
        [],
        "what is evaluated, one completion per row, given like --dataset; none: as many rows of "
        "--dataset as a rollout has completions",
    )


@dataclass(frozen=True)
class OutputOptions(Options, heading="output"):
    """Checkpoints, logs, trackers."""

    output_dir: str = option("grpo-doctor-out/train", "folder of checkpoints and completions")
    save_steps: int = option(500, "optimizer steps between checkpoints; 0: none", ge=0, embedded=40)
    save_total_limit: int | None = option(None, "checkpoints to keep; none: all", ge=1, embedded=2)
    save_only_model: bool = option(False, "leave the optimizer state out of checkpoints")
    logging_steps: int = option(5, "optimizer steps between log lines", ge=1, embedded=1)
    log_completions: bool = option(
        False, "print a sample and write every completion to completions.jsonl"
    )
    resume_from_checkpoint: str | None = option(
        None, "a checkpoint-N folder to go on from, or latest: the newest in --output_dir, if any"
    )
    report_to: list[str] = option(
        [], "experiment trackers: tensorboard, wandb, swanlab; none: none"
    )
    run_name: str | None = option(None, "name of the run in trackers")
    logging_dir: str | None = option(
        None, "folder of TensorBoard's files; none: runs in --output_dir"
    )
