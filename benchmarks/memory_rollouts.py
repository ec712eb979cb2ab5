"""The rollouts of a record of measured memory: what GRPO adds to a setup."""

from __future__ import annotations

import re
from dataclasses import replace

from benchmarks.memory_records import Config, UnreadableError, flag, is_megatron, number
from grpo_doctor.memory.setup import GIB, Rollout, RolloutEngine, Setup

_GENERATED = ("steps_per_generation", "gradient_accumulation_steps")


def grpo(setup: Setup, config: Config) -> Setup:
    prompt = number(config, "max_prompt", "max_prompt_length", "prompt_max_len", "max_length")
    prompt = prompt or 512 + setup.image_tokens
    completion = number(
        config, "max_completion_length", "max_response", "max_response_length", "generate_max_len"
    )
    if completion is None:
        completion = max(1024, (number(config, "seq_len", "context") or 0) - prompt)
    verl = setup.framework == "verl"
    setup = replace(
        setup,
        prompt_tokens=prompt,
        completion_tokens=completion,
        packing=False,
        loss="parallel" if is_megatron(config) else "inplace" if verl else "bfloat16",
        whole_row_logits=verl
        or (
            setup.framework == "ms-swift"
            and (
                setup.model.vision is not None or (_is_old_swift(config) and setup.method == "lora")
            )
        ),
        scores_prompts=verl or is_megatron(config) or setup.framework == "openrlhf",
        reference=float(config.get("beta", 0.04)) > 0 and setup.method == "full",
        rollout=_rollout(setup, config),
        completions_per_rank=setup.micro_batch * (number(config, *_GENERATED) or 1),
        old_vision_tower=setup.framework == "ms-swift"
        and _is_old_swift(config)
        and "flash" not in str(config.get("attn_impl")),
        offload_weights=flag(config, "offload_model", flag(config, "param_offload", False)),
        offload_optimizer=flag(
            config, "offload_optimizer", flag(config, "optimizer_offload", False)
        ),
        padding_free=flag(config, "padding_free", verl),
        sync_groups=number(config, "move_model_batches"),
    )
    if setup.rollout == "generate" and not number(config, *_GENERATED):
        raise UnreadableError("how many completions are generated at once is not said")
    return replace(setup, rollout_engine=_engine(setup, config))


def _is_old_swift(config: Config) -> bool:
    """Before 3.5, which brought vllm_mode: then vLLM had a card of its own if one was left."""
    return not {"vllm_mode", "tuner_type"} & set(config)


def _rollout(setup: Setup, config: Config) -> Rollout:
    cards = number(config, "gpus") or 1
    trainers = number(config, "nproc_per_node") or cards
    colocated = {"sleep_level", "offload_model", "num_infer_workers"} & set(config)
    names_vllm = any("vllm" in key for key in config)
    apart = (
        "server" in str(config.get("vllm_mode"))
        or trainers < cards
        or flag(config, "async_generate", False)
        or config.get("vllm_device") == "auto"
        or (
            setup.framework == "ms-swift" and _is_old_swift(config) and names_vllm and not colocated
        )
        or str(config.get("vllm")).startswith("separate")
        or "vLLM" in str(config.get("gpus"))
    )
    if apart:
        return "server"
    used = flag(config, "use_vllm", False) or "vllm_gpu_memory_utilization" in config
    return "colocate" if used or setup.framework == "verl" else "generate"


def _engine(setup: Setup, config: Config) -> RolloutEngine:
    """The engine; a division that is not said is the smallest with which it starts."""
    share = config.get("vllm_gpu_memory_utilization", config.get("gpu_memory_utilization"))
    stated = re.fullmatch(r"0?\.\d+", str(share))
    names = ["vllm_tensor_parallel_size", "tensor_parallel_size", "rollout_tp", "tp"]
    if setup.engine == "fsdp":
        names.append("tensor_model_parallel_size")
    tensor = number(config, *names)
    memory_share = float(stated.group()) if stated else 0.5
    if tensor is None:
        tensor = 1
        weights = 2 * setup.model.parameters + 4 * GIB
        while weights / tensor > memory_share * setup.card_bytes and tensor < setup.ranks:
            tensor *= 2
    # ms-swift's documents pair its offload with sleep; a pasted command is often cut off
    sleeps = setup.framework == "verl" or setup.offload_weights
    return RolloutEngine(
        version="0.8",
        memory_share=memory_share,
        tensor_parallel=tensor,
        max_model_len=number(config, "vllm_max_model_len"),
        sleep_level=int(config.get("sleep_level", sleeps)),
    )
