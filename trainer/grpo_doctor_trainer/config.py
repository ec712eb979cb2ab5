"""Every option of the trainer, once: name, type, default, help and group.

The names and, for a real model, the defaults are those of ms-swift (`swift rlhf --rlhf_type grpo`),
so that a launch line can be reused; other options are named as in TRL. `flags.py` makes the command
line from this class, in this order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from msgspec import Meta

EMBEDDED_VL = "embedded-vl"
"""The value of `--model` that asks for the embedded tiny vision-language model."""
_WIDTH_STEP = 64  # four heads, each with a turn for an image's time, height and width
_LARGEST_SEED = 2**32 - 1  # NumPy's; torch's is larger, and each rank adds its number
_T = TypeVar("_T")
_headings = [""]


def heading(title: str) -> None:
    """Begin a group of `--help`."""
    _headings.append(title)


def option(
    default: _T,
    text: str,
    *,
    choices: tuple[str, ...] = (),
    embedded: Any = None,
    reason: str = "",
    **limits: Any,
) -> _T:
    """Declare an option.

    `embedded` is its default with the embedded model, where that differs; `reason` says what a
    value outside of the limits would do; `limits` are those of `msgspec.Meta`.
    """
    metadata = {
        "group": _headings[-1],
        "help": text,
        "limits": Meta(**limits),
        "choices": choices,
        "embedded": embedded,
        "reason": reason,
    }
    if isinstance(default, list):
        return cast("_T", field(default_factory=default.copy, metadata=metadata))
    return field(default=default, metadata=metadata)


@dataclass(frozen=True)
class TrainerConfig:
    """The resolved options of one run."""

    heading("model")
    model: str | None = option(
        None,
        "Hugging Face name or local folder; embedded-vl: an embedded tiny random Qwen2.5-VL; none: "
        "an embedded tiny random Qwen2",
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
        choices=("auto", "float32", "bfloat16"),
        embedded="float32",
    )
    gradient_checkpointing: bool = option(
        True, "recompute activations in the backward pass to save memory", embedded=False
    )

    heading("data")
    dataset: list[str] = option(
        [],
        "local .jsonl/.json/.parquet files or Hugging Face names; none: generated arithmetic",
    )
    max_length: int = option(2048, "longest prompt in tokens; longer ones lose their start", ge=1)
    max_pixels: int | None = option(
        None,
        "vision-language: largest area of an image in pixels, larger ones are scaled down; none: "
        "the model's own limit",
        ge=1,
    )
    dataloader_num_workers: int = option(1, "processes that tokenize ahead; 0: none", ge=0)
    dataloader_prefetch_factor: int = option(2, "batches each worker prepares ahead", ge=1)

    heading("rewards")
    reward_funcs: list[str] = option(
        [],
        "accuracy, format, arithmetic, or path/to/file.py:function; "
        "none: accuracy, with arithmetic for generated arithmetic",
    )
    reward_weights: list[float] = option([], "one weight per reward function; none: 1 each")
    scale_rewards: str = option(
        "group",
        "what divides the advantages: the reward's standard deviation in its group, in the whole "
        "batch, or nothing",
        choices=("group", "batch", "none"),
        embedded="none",
    )
    reward_timeout: float = option(
        60.0,
        "seconds that one call of a reward function may take for the rank's whole batch; then the "
        "run ends and says where it hung; 0: no limit",
        ge=0,
    )
    reward_num_workers: int = option(
        1,
        "processes per rank that run the reward functions, different ones at once; 0: in "
        "the trainer's own process, for a debugger, without --reward_timeout",
        ge=0,
    )

    heading("rollout")
    num_generations: int = option(
        8,
        "completions per prompt, the group of GRPO",
        ge=2,
        reason="a single completion has no group to compare with",
        embedded=16,
    )
    max_completion_length: int = option(512, "longest completion in tokens", ge=1, embedded=8)
    temperature: float = option(
        0.9,
        "sampling temperature",
        gt=0,
        reason="at 0 all completions of a group are equal; try 1.0",
        embedded=1.0,
    )
    top_p: float = option(1.0, "nucleus sampling; 1: off", gt=0, le=1)
    top_k: int = option(-1, "sample from the k likeliest tokens; -1 or 0: from all", ge=-1)
    repetition_penalty: float = option(1.0, "above 1 makes repetitions unlikelier", gt=0)
    offload_model: bool = option(
        False, "move weights the rollout does not need to host memory while it runs"
    )
    offload_optimizer: bool = option(
        False, "move the optimizer state to host memory while the rollout runs"
    )
    gc_collect_after_offload: bool = option(
        False, "collect garbage and empty the CUDA cache after each offload"
    )

    heading("vllm")
    use_vllm: bool = option(False, "generate with vLLM instead of transformers")
    vllm_mode: str = option(
        "colocate",
        "colocate: an engine in each rank, on its device; server: vLLM's own server, whose command "
        "the trainer shows while it waits for it",
        choices=("colocate", "server"),
    )
    vllm_gpu_memory_utilization: float = option(
        0.9,
        "colocate: share of the device's memory for the engine, weights and KV cache; without a "
        "GPU, for the KV cache alone: this share of the host's memory, divided by the ranks on it",
        gt=0,
        le=1,
        reason="it is a share of the memory, such as 0.5",
        embedded=0.02,
    )
    vllm_max_model_len: int | None = option(
        None,
        "longest prompt and completion together; none: --max_length + "
        "--max_completion_length, at most the model's own limit",
        ge=1,
    )
    vllm_max_num_seqs: int | None = option(
        None, "sequences the engine decodes at once; none: those of one rollout", ge=1
    )
    vllm_enforce_eager: bool = option(False, "no CUDA graphs: starts sooner, decodes more slowly")
    vllm_enable_prefix_caching: bool = option(True, "compute the shared start of prompts once")
    sleep_level: int = option(
        0,
        "colocate, between rollouts: 0 keeps the engine's memory, 1 moves its weights to host "
        "memory and drops the KV cache, 2 drops both",
        ge=0,
        le=2,
    )
    move_model_batches: int | None = option(
        None, "parts in which weights are gathered and sent to the engine; none: all at once", ge=1
    )
    vllm_server_host: str = option("127.0.0.1", "server: where it runs")
    vllm_server_port: int = option(8000, "server: its HTTP port", ge=1, le=65535)
    vllm_server_timeout: float = option(240.0, "server: seconds to wait for it to come up", gt=0)
    vllm_weights_dir: str | None = option(
        None,
        "server: folder through which it gets the weights; both must see it; none: /dev/shm",
    )
    vllm_timeout: float = option(
        1800.0,
        "server: seconds for an answer, at most 0.9 of --ddp_timeout",
        gt=0,
    )
    rollout_importance_sampling_mode: str | None = option(
        None,
        "corrects for log-probs that differ between engine and trainer: a weight per token or "
        "per completion, cut off or set to 0 above the threshold",
        choices=("token_truncate", "token_mask", "sequence_truncate", "sequence_mask"),
    )
    rollout_importance_sampling_threshold: float = option(
        2.0, "largest weight of that correction", gt=0
    )

    heading("batch")
    per_device_train_batch_size: int = option(
        1, "completions per rank in one forward and backward pass", ge=1, embedded=512
    )
    gradient_accumulation_steps: int = option(1, "passes per optimizer step", ge=1)
    steps_per_generation: int | None = option(
        None, "passes fed by one rollout; none: --gradient_accumulation_steps"
    )
    num_iterations: int = option(1, "times each rollout is trained on", ge=1)
    share_prompts: bool = option(
        True,
        "compute a prompt once for its completions: in the rollout with transformers, and in each "
        "pass for those that are in it, without padding; "
        "false: each completion with its prompt, padded to the longest",
    )

    heading("loss")
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

    heading("optimizer")
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

    heading("length")
    max_steps: int = option(
        -1,
        "optimizer steps; -1 or 0: from --num_train_epochs",
        ge=-1,
        embedded=80,
    )
    num_train_epochs: float = option(1.0, "passes over the dataset, without --max_steps", gt=0)
    seed: int = option(42, "seed of data order and sampling", ge=0, le=_LARGEST_SEED)

    heading("distribution")
    deepspeed: str | None = option(
        None,
        "DeepSpeed's ZeRO stage, and what it offloads to host memory; none: plain DDP",
        choices=("zero0", "zero1", "zero2", "zero3", "zero2_offload", "zero3_offload"),
        embedded="zero2",
    )
    ddp_timeout: int = option(1800, "seconds until a stuck collective is an error", ge=1)

    heading("output")
    output_dir: str = option("grpo-doctor-out/train", "folder of checkpoints and completions")
    save_steps: int = option(500, "optimizer steps between checkpoints; 0: none", ge=0, embedded=40)
    save_total_limit: int | None = option(None, "checkpoints to keep; none: all", ge=1, embedded=2)
    save_only_model: bool = option(False, "leave the optimizer state out of checkpoints")
    logging_steps: int = option(5, "optimizer steps between log lines", ge=1, embedded=1)
    log_completions: bool = option(
        False, "print a sample and write every completion to completions.jsonl"
    )
    resume_from_checkpoint: str | None = option(
        None,
        "a checkpoint-N folder to continue from, or latest: the newest in --output_dir, if any",
    )

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
    def zero_stage(self) -> int | None:
        """The ZeRO stage of `--deepspeed`; none without DeepSpeed."""
        return None if self.deepspeed is None else int(self.deepspeed[4])

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
