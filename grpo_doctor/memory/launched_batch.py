"""What a launch says of its micro-batches: rows, lengths, budgets of tokens, the loss."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from grpo_doctor.launches import Launch
from grpo_doctor.memory.facts import facts, holds_since, latest
from grpo_doctor.memory.setup import Attention, Engine, Loss, Setup

_TEXT_PROMPT = 512
_USUAL_PIXELS = 1_003_520
"""1280 tokens of Qwen's; its image processor allows 12,845,056 pixels, but few have as many."""
_ACTOR = "actor_rollout_ref.actor."
_PACKED = f"{_ACTOR}megatron.use_remove_padding"
"""Of Megatron the only switch, since verl 0.7: before, model_forward.py always packs."""
_PASSES = ("actor_rollout_ref.rollout.", "actor_rollout_ref.ref.")
"""Where verl sets what its passes without gradients take."""


def with_batch(setup: Setup, launch: Launch, assumptions: list[str]) -> Setup:
    """Return the setup with the launch's micro-batches; add each default to `assumptions`."""
    setup = _with_lengths(setup, launch, assumptions)
    value = launch.value
    padding_free = bool(value("train.padding_free"))
    if launch.framework == "verl" and setup.engine == "megatron":
        padding_free = str(launch.options.get(_PACKED, True)).lower() == "true"
    setup = replace(
        setup,
        micro_batch=int(value("train.micro_batch") or 1),
        logprob_micro_batch=value("train.logprob_micro_batch"),
        padding_free=padding_free,
        attention=_attention(launch),
        loss=_loss(launch, setup.engine),
        whole_row_logits=_whole_rows(launch, setup),
        scores_prompts=launch.framework == "openrlhf"
        or setup.engine == "megatron"
        or (launch.framework == "verl" and padding_free),
        reference=_has_reference(launch) and _reference_stays(launch),
        old_vision_tower=_has_old_vision_tower(launch),
    )
    setup = _rows_of_verl(setup, launch) if launch.framework == "verl" else setup
    return _with_budgets(setup, launch) if value("train.dynamic_batch") else setup


def _with_lengths(setup: Setup, launch: Launch, assumptions: list[str]) -> Setup:
    value = launch.value
    vision = setup.model.vision
    pixels = value("data.max_pixels")
    if vision is not None and pixels is None:
        pixels = _USUAL_PIXELS
        tokens = _USUAL_PIXELS // vision.pixels_per_token
        images = f"images of up to {_USUAL_PIXELS} pixels, {tokens} tokens (more are allowed)"
        assumptions.append(_assumed(launch, images, "data.max_pixels", _USUAL_PIXELS))
    setup = replace(setup, max_pixels=pixels if vision else None)
    prompt = value("data.max_length")
    if (unlimited := prompts_assumed(launch, setup)) is not None:
        prompt = _TEXT_PROMPT + setup.image_tokens
        assumptions.append(unlimited)
    completion = value("rollout.max_completion_length")
    row = value("vllm.max_model_len") if launch.framework == "openrlhf" else None
    if row:  # of prompt and completion together
        prompt = max(1, min(prompt, row - (completion or 1)))
        completion = max(1, min(completion or row, row - prompt))
    elif completion is None:
        completion, knob = 512, "rollout.max_completion_length"
        assumptions.append(_assumed(launch, "completions of 512 tokens", knob, completion))
    return replace(setup, prompt_tokens=int(prompt), completion_tokens=int(completion))


def prompts_assumed(launch: Launch, setup: Setup) -> str | None:
    """Return the assumption on the length of prompts; None where the launch limits them."""
    if launch.value("data.max_length") is not None:
        return None
    prompt = _TEXT_PROMPT + setup.image_tokens
    return _assumed(launch, f"prompts of up to {prompt} tokens", "data.max_length", prompt)


def _rows_of_verl(setup: Setup, launch: Launch) -> Setup:
    """Rows of verl's micro-batches; older names count rows of all ranks, and a micro-batch is never
    more than a rank's part of the mini-batch."""
    copies = max(1, setup.data_parallel // setup.context_parallel)
    answers = int(launch.value("rollout.num_generations") or 1)

    def rows(prefix: str, name: str) -> int | None:
        each, every = (count(launch, f"{prefix}{name}{tail}") for tail in ("_per_gpu", ""))
        return each or (max(1, every // copies) if every else None)

    def part(prompts: Any) -> int:
        return max(1, int(prompts) * answers // copies)

    passes = [rows(prefix, "log_prob_micro_batch_size") or 0 for prefix in _PASSES]
    longest_pass = max(passes if _has_reference(launch) else passes[:1])
    trained = part(launch.value("train.prompts_per_step") or 1)
    sampled = part(launch.value("rollout.prompts") or 1)
    return replace(
        setup,
        micro_batch=min(rows(_ACTOR, "ppo_micro_batch_size") or setup.micro_batch, trained),
        logprob_micro_batch=min(longest_pass, sampled) or None,
        most_rows=trained,
        most_logprob_rows=sampled,
    )


def _with_budgets(setup: Setup, launch: Launch) -> Setup:
    """Micro-batches that are filled with rows up to so many tokens."""
    trained = int(launch.value("train.max_tokens_per_gpu") or 0) or None
    names = [f"{prefix}log_prob_max_token_len_per_gpu" for prefix in _PASSES]
    names += ["rollout.max_tokens_per_gpu", "rollout_max_tokens_per_gpu"]
    passes = [tokens for name in names if (tokens := count(launch, name))]
    return replace(setup, train_tokens=trained, logprob_tokens=max(passes, default=trained))


def count(launch: Launch, option: str) -> int | None:
    """Return a whole number that an option without a name of ours has; None without one."""
    text = str(launch.options.get(option, ""))
    return int(text) if text.isdecimal() else None


def _has_reference(launch: Launch) -> bool:
    """A KL term in the loss, or in verl's rewards (main_ppo.py: use_kl_in_reward)."""
    in_rewards = str(launch.options.get("algorithm.use_kl_in_reward")).lower() == "true"
    return bool(launch.value("train.beta")) or (launch.framework == "verl" and in_rewards)


def _reference_stays(launch: Launch) -> bool:
    """Whether the reference's weights lie on the trainer's cards all the time."""
    together = launch.framework != "openrlhf" or launch.value("vllm.mode") == "colocate"
    together = together or any("colocate_actor_ref" in name for name in launch.options)
    return together and not launch.value("offload.reference")


def _assumed(launch: Launch, what: str, knob: str, value: int) -> str:
    """What is assumed, and the framework's own option for it."""
    spelling = launch.said(knob, value)
    return f"{what}; to change that: {spelling}" if spelling else f"{what}; no option limits them"


def _has_old_vision_tower(launch: Launch) -> bool:
    """Without flash attention and before transformers 4.53, or the release that came with it."""
    if "flash" in str(launch.value("model.attention")):
        return False
    until: Mapping[str, str] = facts()["old_vision_tower"]["until"]
    stated = launch.versions.get("transformers")
    if stated:
        return not holds_since(stated, until["transformers"])
    return launch.framework in until and not holds_since(launch.version, until[launch.framework])


def _whole_rows(launch: Launch, setup: Setup) -> bool:
    if launch.framework == "verl":
        return True
    rule = facts()["whole_row_logits"].get(launch.framework)
    if rule is None:
        return False
    adapters = setup.method == "lora" and not holds_since(launch.version, rule["lora_until"])
    return bool(setup.model.vision or launch.value("train.padding_free") or adapters)


def _attention(launch: Launch) -> Attention:
    name = str(launch.value("model.attention") or "")
    if "flash" in name or launch.framework in ("verl", "openrlhf"):
        return "flash"
    return "eager" if "eager" in name else "fused"


def _loss(launch: Launch, engine: Engine) -> Loss:
    if launch.value("train.use_liger"):
        return "fused"
    if launch.backend == "megatron" or launch.value("parallel.strategy") == "megatron":
        return "parallel"
    steps = facts()["grpo_loss"]["since"].get(launch.framework)
    loss: Loss = latest(steps, launch.version) if steps else "bfloat16"
    if loss == "inplace" and launch.value("train.entropy_coefficient"):
        return "entropy"
    trl_s = launch.framework in ("trl", "ms-swift") and loss == "bfloat16"
    return "upcast" if trl_s and engine != "deepspeed" else loss
