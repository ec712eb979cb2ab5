"""Single knobs set to other values: how a setup follows, and what each costs in time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from grpo_doctor.errors import UsageError
from grpo_doctor.memory.engine import least_share
from grpo_doctor.memory.setup import Setup

_PARTS = (2, 4, 8, 1024)
SIZES = ("train.micro_batch", "train.max_tokens_per_gpu")
UTILIZATION = "vllm.gpu_memory_utilization"
_DIVIDED = "gradients divided among ranks"
Apply = Callable[[Setup, Any], Setup]


@dataclass(frozen=True, slots=True)
class Edit:
    """One knob set to another value; `cost` says in words what that costs in time.

    `slowdown` orders edits by it, 0 costs nothing. What a run with another `experiment` learns is
    not what was asked for.
    """

    knob: str
    value: Any
    cost: str
    slowdown: int
    experiment: Literal["same", "another"] = "same"


def _engine(field: str) -> Apply:
    return lambda setup, value: replace(
        setup, rollout_engine=replace(setup.rollout_engine, **{field: value})
    )


def _plain(field: str) -> Apply:
    return lambda setup, value: replace(setup, **{field: value})


_APPLY: dict[str, Apply] = {
    UTILIZATION: _engine("memory_share"),
    "vllm.tensor_parallel_size": _engine("tensor_parallel"),
    "vllm.max_model_len": _engine("max_model_len"),
    "vllm.max_num_seqs": _engine("max_sequences"),
    "vllm.sleep_level": _engine("sleep_level"),
    "vllm.enforce_eager": _engine("eager"),
    "offload.model": _plain("offload_weights"),
    "offload.optimizer": _plain("offload_optimizer"),
    "deepspeed.stage": lambda setup, stage: replace(setup, engine="deepspeed", zero_stage=stage),
    "deepspeed.offload_optimizer": _plain("zero_offload_optimizer"),
    "deepspeed.offload_param": _plain("zero_offload_parameters"),
    "train.micro_batch": _plain("micro_batch"),
    "train.logprob_micro_batch": _plain("logprob_micro_batch"),
    "train.max_tokens_per_gpu": _plain("train_tokens"),
    "train.gradient_checkpointing": lambda setup, on: replace(
        setup, recompute="full" if on else "none"
    ),
    "train.activation_offload": _plain("activations_on_host"),
    "train.use_liger": lambda setup, on: replace(setup, loss="fused" if on else "bfloat16"),
    "train.beta": lambda setup, beta: replace(setup, reference=bool(beta)),
    "train.type": _plain("method"),
    "train.lora_rank": _plain("lora_rank"),
    "rollout.max_completion_length": _plain("completion_tokens"),
    "data.max_length": _plain("prompt_tokens"),
    "data.max_pixels": _plain("max_pixels"),
    "sync.move_model_batches": _plain("sync_groups"),
    "parallel.tensor": _plain("tensor_parallel"),
    "parallel.context": _plain("context_parallel"),
}
SOLVABLE: dict[str, Sequence[float]] = {
    UTILIZATION: tuple(share / 100 for share in range(10, 96, 5)),
    "vllm.max_model_len": tuple(512 * step for step in range(1, 257)),
    "vllm.max_num_seqs": tuple(2**power for power in range(11)),
    "train.micro_batch": tuple(range(1, 129)),
    "train.logprob_micro_batch": tuple(range(1, 257)),
    "train.max_tokens_per_gpu": tuple(1024 * step for step in range(1, 129)),
    "train.lora_rank": tuple(2**power for power in range(2, 11)),
    "rollout.max_completion_length": tuple(256 * step for step in range(1, 257)),
    "data.max_length": tuple(256 * step for step in range(1, 257)),
    "data.max_pixels": tuple(28 * 28 * 64 * step for step in range(1, 257)),
}
"""Knobs of which more takes more memory, and the values that are tried, ascending."""


def apply(setup: Setup, knob: str, value: Any) -> Setup:
    """The setup with one knob at another value.

    Raises:
        UsageError: memory does not depend on the knob.
    """
    if knob not in _APPLY:
        raise UsageError(f"memory does not depend on {knob}; it does on {', '.join(_APPLY)}")
    return _APPLY[knob](setup, value)


def relieving(setup: Setup) -> Iterator[Edit]:
    """Edits that take memory off the cards, where they are not in force already."""
    if setup.rollout == "colocate":
        yield from _colocated_relief(setup)
    yield from _state_relief(setup)
    yield from _batch_relief(setup)
    if setup.recompute == "none" and setup.engine != "megatron":
        yield Edit("train.gradient_checkpointing", True, "a third more computing in training", 3)
    if setup.loss not in ("fused", "none", "parallel", "triton"):
        yield Edit("train.use_liger", True, "none, often faster", 0)
    if setup.reference and setup.method == "full":
        yield Edit("train.beta", 0.0, "none; the KL term is gone", 4, "another")
    if setup.is_grpo and setup.completion_tokens > 512:
        yield Edit("rollout.max_completion_length", setup.completion_tokens // 2,
                   "none; longer answers are cut off", 5, "another")  # fmt: skip
    if setup.max_pixels and setup.max_pixels > 401_408:
        yield Edit("data.max_pixels", 401_408, "none; images lose detail", 4, "another")
    if setup.method == "full":
        yield Edit("train.type", "lora", "none; another experiment", 5, "another")


def _batch_relief(setup: Setup) -> Iterator[Edit]:
    if setup.micro_batch > 1 and not setup.train_tokens:
        for part in sorted({max(1, setup.micro_batch // share) for share in _PARTS}):
            yield Edit("train.micro_batch", part, "more, smaller passes; raise "
                       "train.grad_accumulation in step", 2)  # fmt: skip
    longest = setup.prompt_tokens + setup.completion_tokens
    for share in _PARTS[:-1] if setup.train_tokens else ():
        if (setup.train_tokens or 0) // share >= longest:
            yield Edit("train.max_tokens_per_gpu", (setup.train_tokens or 0) // share,
                       "more, smaller passes", 2)  # fmt: skip


def _colocated_relief(setup: Setup) -> Iterator[Edit]:
    engine = setup.rollout_engine
    smallest = least_share(setup)
    between = round(10 * (smallest + engine.memory_share)) / 20
    for share in sorted({smallest, between}):
        if smallest <= share < engine.memory_share:
            yield Edit(UTILIZATION, share, "fewer sequences at once in rollouts", 1)
    if engine.sleep_level == 0:
        yield Edit("vllm.sleep_level", 1, "seconds per step to put the engine to sleep", 1)
    if not setup.offload_weights:
        yield Edit("offload.model", True, "weights over PCIe and back, each step", 2)
    if not setup.offload_optimizer:
        yield Edit("offload.optimizer", True, "optimizer state over PCIe and back, each step", 2)
    for size in (2, 4, 8):
        divides = setup.model.heads % size == 0 and setup.ranks % size == 0
        if engine.tensor_parallel < size and divides:
            yield Edit("vllm.tensor_parallel_size", size, "fewer engines, each faster", 2)
    if not engine.eager:
        yield Edit("vllm.enforce_eager", True, "slower decoding, up to several times", 4)


def _state_relief(setup: Setup) -> Iterator[Edit]:
    vllm = setup.rollout in ("colocate", "server")
    if vllm and setup.zero_stage == 3 and (setup.sync_groups or 1) < 16:
        yield Edit("sync.move_model_batches", 16, "a second or two per weight sync", 1)
    if setup.engine in ("torch", "deepspeed") and setup.ranks > 1:
        for stage in (2, 3):
            if setup.zero_stage < stage:
                cost = "all weights gathered in each pass" if stage == 3 else _DIVIDED
                yield Edit("deepspeed.stage", stage, cost, 2 if stage == 3 else 1)
    if setup.engine == "deepspeed" and not setup.zero_offload_optimizer:
        yield Edit("deepspeed.offload_optimizer", True, "the optimizer step runs on the host", 3)
    if setup.zero_stage == 3 and not setup.zero_offload_parameters:
        yield Edit("deepspeed.offload_param", True, "weights over PCIe in each pass", 4)


def spending(setup: Setup) -> Iterator[Edit]:
    """Edits that give memory for time."""
    if setup.zero_offload_parameters:
        yield Edit("deepspeed.offload_param", False, "no weights over PCIe in each pass", 0)
    if setup.zero_offload_optimizer:
        yield Edit("deepspeed.offload_optimizer", False, "the optimizer step runs on the card", 0)
    if setup.zero_stage == 3:
        yield Edit("deepspeed.stage", 2, "no gathering of weights", 0)
    if setup.offload_weights:
        yield Edit("offload.model", False, "no weights over PCIe in each step", 0)
    if setup.offload_optimizer:
        yield Edit("offload.optimizer", False, "no optimizer state over PCIe in each step", 0)
    if setup.rollout == "colocate":
        share = setup.rollout_engine.memory_share
        for more in (0.2, 0.1):
            if share + more <= 0.9:
                yield Edit(UTILIZATION, round(share + more, 2), "more sequences at once", 0)
                break
    yield Edit("train.micro_batch", 2 * setup.micro_batch, "fewer, larger passes", 0)
