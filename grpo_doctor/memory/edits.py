"""Set single settings to other values: how a setup changes, and what each costs in time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, Literal

from grpo_doctor.errors import UsageError
from grpo_doctor.memory.engine import least_share
from grpo_doctor.memory.facts import shipped
from grpo_doctor.memory.setup import Setup

_PARTS = (2, 4, 8, 1024)
SIZES = ("train.micro_batch", "train.max_tokens_per_gpu")
UTILIZATION = "vllm.gpu_memory_utilization"
_DIVIDED = "gradients divided among ranks"


@dataclass(frozen=True, slots=True)
class Edit:
    """One setting at another value; `cost` says in words what that costs in time.

    `slowdown` orders edits by it, 0 costs nothing. What a run with another `experiment` learns is
    not what was asked for. `raises` is the setting that has to grow as this one shrinks, where the
    framework has it.
    """

    knob: str
    value: Any
    cost: str
    slowdown: int
    experiment: Literal["same", "another"] = "same"
    raises: str = ""


_TABLE = shipped("edits.json")
_FIELDS: dict[str, str] = _TABLE["fields"]
_IN_OTHER_WORDS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "deepspeed.stage": lambda stage: {"engine": "deepspeed", "zero_stage": stage},
    "train.gradient_checkpointing": lambda on: {"recompute": "full" if on else "none"},
    "train.use_liger": lambda on: {"loss": "fused" if on else "bfloat16"},
    "train.beta": lambda beta: {"reference": bool(beta)},
}
SOLVABLE: dict[str, Sequence[float]] = {
    UTILIZATION: tuple(share / 100 for share in range(10, 96, 5)),
    **{
        knob: tuple(2**power for power in range(*reach)) for knob, reach in _TABLE["powers"].items()
    },
    **{knob: range(*reach) for knob, reach in _TABLE["steps"].items()},
}
"""Settings whose larger values take more memory, and the values that are tried, ascending."""


def apply(setup: Setup, knob: str, value: Any) -> Setup:
    """Return the setup with one setting at another value.

    Raises:
        UsageError: memory does not depend on the setting.
    """
    if knob in _IN_OTHER_WORDS:
        return replace(setup, **_IN_OTHER_WORDS[knob](value))
    if knob not in _FIELDS:
        known = ", ".join((*_FIELDS, *_IN_OTHER_WORDS))
        raise UsageError(f"memory does not depend on {knob}; it does on {known}")
    part, _, field = _FIELDS[knob].rpartition(".")
    if part:
        return replace(setup, rollout_engine=replace(setup.rollout_engine, **{field: value}))
    return replace(setup, **{field: value})


def relieving(setup: Setup) -> Iterator[Edit]:
    """Edits that take memory off the cards, where they are not in force already."""
    if setup.rollout == "colocate":
        yield from _colocated_relief(setup)
    yield from _state_relief(setup)
    yield from _batch_relief(setup)
    if setup.recompute == "none" and setup.engine != "megatron":
        yield Edit("train.gradient_checkpointing", True, "a third more computing in training", 3)
    if setup.loss not in ("fused", "none", "parallel", "triton"):
        yield Edit("train.use_liger", True, "often faster", 0)
    if setup.is_grpo and setup.completion_tokens > 512:
        yield Edit("rollout.max_completion_length", setup.completion_tokens // 2,
                   "longer answers are cut off", 5, "another")  # fmt: skip
    if setup.max_pixels and setup.max_pixels > 401_408:
        yield Edit("data.max_pixels", 401_408, "images lose detail", 4, "another")
    for when, edit in _TABLE["relief"]:
        if all(attrgetter(name)(setup) == value for name, value in when.items()):
            yield Edit(*edit)


def _batch_relief(setup: Setup) -> Iterator[Edit]:
    if setup.micro_batch > 1 and not setup.train_tokens:
        for part in sorted({max(1, setup.micro_batch // share) for share in _PARTS}):
            yield Edit("train.micro_batch", part, "more, smaller passes", 2,
                       raises="train.grad_accumulation")  # fmt: skip
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
    for size in (2, 4, 8):
        divides = setup.model.heads % size == 0 and setup.ranks % size == 0
        if engine.tensor_parallel < size and divides:
            yield Edit("vllm.tensor_parallel_size", size, "fewer engines, each faster", 2)


def _state_relief(setup: Setup) -> Iterator[Edit]:
    vllm = setup.rollout in ("colocate", "server")
    if vllm and setup.zero_stage == 3 and (setup.sync_groups or 1) < 16:
        yield Edit("sync.move_model_batches", 16, "a second or two per weight sync", 1)
    if setup.engine in ("torch", "deepspeed") and setup.ranks > 1:
        for stage in (2, 3):
            if setup.zero_stage < stage:
                cost = "all weights gathered in each pass" if stage == 3 else _DIVIDED
                yield Edit("deepspeed.stage", stage, cost, 2 if stage == 3 else 1)


def spending(setup: Setup) -> Iterator[Edit]:
    """Edits that give memory for time."""
    for field, knob, off, gain in _TABLE["gives_memory_for_time"]:
        if getattr(setup, field) and (field != "zero_stage" or setup.zero_stage == 3):
            yield Edit(knob, off, gain, 0)
    if setup.rollout == "colocate":
        share = setup.rollout_engine.memory_share
        for more in (0.2, 0.1):
            if share + more <= 0.9:
                yield Edit(UTILIZATION, round(share + more, 2), "more sequences at once", 0)
                break
    yield Edit("train.micro_batch", 2 * setup.micro_batch, "fewer, larger passes", 0)
