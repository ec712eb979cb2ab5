"""From a launch to setups: the only module here that knows what a launch is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from grpo_doctor.errors import UsageError
from grpo_doctor.launches import Launch
from grpo_doctor.memory.facts import facts, latest
from grpo_doctor.memory.models import ModelShape, model_shape, quantized_bits
from grpo_doctor.memory.setup import Engine, Loss, Recompute, Rollout, RolloutEngine, Setup

_TEXT_PROMPT = 512
_DEFAULT_PIXELS = 12_845_056
"""What Qwen's processors allow where nobody says less: 16384 tokens."""
_SHORT_TYPES = frozenset({"bfloat16", "float16", "bf16", "fp16", "auto", "half"})


@dataclass(frozen=True, slots=True)
class Job:
    """A launch as setups: of the trainer, and of the server on cards of its own."""

    trainer: Setup | None
    server: Setup | None
    assumptions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Machine:
    """The cards and hosts that a launch gets."""

    card_bytes: int
    cards_per_node: int
    nodes: int = 1
    host_bytes: int | None = None
    server_card_bytes: int | None = None
    server_cards: int | None = None
    vllm_version: str | None = None


def setup_of(launch: Launch, machine: Machine) -> Job:
    """What the launch's memory depends on.

    Raises:
        UsageError: the launch names no model.
        UnknownModelError: nothing is known of the model.
    """
    assumptions: list[str] = []
    if launch.role == "rollout server":
        return Job(None, _server(launch, machine, assumptions), tuple(assumptions))
    setup = _trainer(launch, machine, assumptions)
    server = None
    if launch.server is not None:
        server = replace(
            _server(launch.server, machine, assumptions, setup.model),
            completion_tokens=setup.completion_tokens,
            prompt_tokens=setup.prompt_tokens,
        )
    return Job(setup, server, tuple(assumptions))


def _shape(launch: Launch) -> ModelShape:
    name = launch.model or launch.value("model.name")
    if not name:
        raise UsageError("the launch names no model: its memory can't be told")
    return model_shape(str(name))


def _trainer(launch: Launch, machine: Machine, assumptions: list[str]) -> Setup:
    model = _shape(launch)
    value = launch.value
    per_node = launch.processes_per_node or value("run.gpus_per_node") or machine.cards_per_node
    nodes = launch.nodes if launch.processes_per_node else value("run.nodes") or machine.nodes
    engine, stage = _engine(launch)
    if (
        engine == "torch"
        and per_node == 1
        and (launch.visible_gpus or 1) > 1
        and not launch.launcher
    ):
        engine, per_node = "device_map", launch.visible_gpus or 1
    rank = value("train.lora_rank", 0) or 0
    kind = value("train.type") or ("lora" if launch.said("train.lora_rank") and rank else "full")
    setup = Setup(
        model,
        machine.card_bytes,
        ranks=per_node * nodes,
        ranks_per_node=per_node,
        engine=engine,
        framework=launch.framework,
        version=launch.version,
        method="lora" if "lora" in str(kind) else "full",
        base_bits=4 if kind == "qlora" else quantized_bits(model_name(launch)) or 16,
        lora_rank=rank or 8,
        lora_targets=_lora_targets(value("train.lora_targets")),
        freeze_vision=bool(value("train.freeze_vit", launch.framework == "ms-swift")),
        freeze_aligner=bool(value("train.freeze_aligner", launch.framework == "ms-swift")),
        trained_dtype_bytes=_dtype_bytes(launch),
        optimizer=_optimizer(launch),
        zero_stage=stage,
        zero_offload_optimizer=bool(value("deepspeed.offload_optimizer"))
        or bool(value("parallel.fsdp_offload")),
        zero_offload_parameters=bool(value("deepspeed.offload_param")),
        host_bytes=machine.host_bytes,
        loader_workers=int(value("dataload.num_workers") or 0),
    )
    setup = _layout(setup, launch)
    setup = _batch(setup, launch, assumptions)
    return _rollout(setup, launch, machine)


def model_name(launch: Launch) -> str:
    """The trained model as the launch names it; empty where it names none."""
    return str(launch.model or launch.value("model.name") or "")


def _engine(launch: Launch) -> tuple[Engine, int]:
    strategy = str(launch.value("parallel.strategy") or "").lower()
    if launch.backend == "megatron" or strategy == "megatron":
        return "megatron", 0
    stage = launch.value("deepspeed.stage")
    if stage is not None:
        return "deepspeed", int(stage)
    if strategy.startswith("fsdp") or strategy in ("full_shard", "full_shard auto_wrap"):
        return "fsdp", 0
    return "torch", 0


def _lora_targets(said: Any) -> Literal["all-linear", "attention"]:
    words = str(said or "all-linear")
    mlp = any(word in words for word in ("all-linear", "gate_proj", "up_proj", "down_proj"))
    return "all-linear" if mlp else "attention"


def _dtype_bytes(launch: Launch) -> int:
    said = launch.value("train.dtype") or launch.value("model.dtype")
    if said is None:
        said = "float32" if launch.framework == "verl" else "auto"
    return 2 if str(said).removeprefix("torch.") in _SHORT_TYPES else 4


def _optimizer(launch: Launch) -> str:
    said = str(launch.value("train.optimizer") or "")
    if not said or said in ("adamw_torch", "adamw", "adam"):
        steps = facts()["optimizer_default"]["since"].get(launch.framework)
        return str(latest(steps, launch.version)) if steps and not said else "adamw_foreach"
    for known in ("8bit", "muon", "galore", "sgd", "adafactor"):
        if known in said:
            return {"8bit": "adamw_8bit", "adafactor": "sgd"}.get(known, known)
    return "adamw"


def _layout(setup: Setup, launch: Launch) -> Setup:
    value = launch.value
    recompute: Recompute = "full" if value("train.gradient_checkpointing", True) else "none"
    if setup.engine == "megatron":
        said = value("parallel.recompute")
        recompute = said if said in ("full", "selective", "none") else "selective"
    return replace(
        setup,
        tensor_parallel=int(value("parallel.tensor") or 1),
        pipeline_parallel=int(value("parallel.pipeline") or 1),
        expert_parallel=int(value("parallel.expert") or 1),
        context_parallel=int(value("parallel.context") or 1),
        distributed_optimizer=bool(value("parallel.distributed_optimizer", True)),
        recompute=recompute,
        activations_on_host=bool(value("train.activation_offload")),
        expandable_segments="expandable_segments:True"
        in launch.environment.get("PYTORCH_CUDA_ALLOC_CONF", ""),
    )


def _batch(setup: Setup, launch: Launch, assumptions: list[str]) -> Setup:
    value = launch.value
    vision = setup.model.vision
    pixels = value("data.max_pixels")
    if vision is not None and pixels is None:
        pixels = _DEFAULT_PIXELS
        tokens = _DEFAULT_PIXELS // vision.pixels_per_token
        assumptions.append(
            f"images of up to {_DEFAULT_PIXELS} pixels, {tokens} tokens; state data.max_pixels"
        )
    setup = replace(setup, max_pixels=pixels if vision else None)
    prompt = value("data.max_length")
    if prompt is None:
        prompt = _TEXT_PROMPT + setup.image_tokens
        assumptions.append(f"prompts of up to {prompt} tokens; state data.max_length")
    completion = value("rollout.max_completion_length")
    if completion is None:
        completion = 512
        assumptions.append("completions of 512 tokens; state rollout.max_completion_length")
    micro_batch = int(value("train.micro_batch") or 1)
    if value("train.dynamic_batch") and value("train.max_tokens_per_gpu"):
        micro_batch = max(1, int(value("train.max_tokens_per_gpu")) // (prompt + completion))
    return replace(
        setup,
        prompt_tokens=int(prompt),
        completion_tokens=int(completion),
        micro_batch=micro_batch,
        logprob_micro_batch=value("train.logprob_micro_batch"),
        padding_free=bool(value("train.padding_free")),
        loss=_loss(launch),
        whole_row_logits=vision is not None and launch.framework == "ms-swift",
        reference=bool(value("train.beta")),
    )


def _loss(launch: Launch) -> Loss:
    if launch.value("train.use_liger"):
        return "fused"
    if launch.backend == "megatron" or launch.value("parallel.strategy") == "megatron":
        return "parallel"
    kernels: Mapping[str, list[list[Any]]] = facts()["grpo_loss"]["since"]
    steps = kernels.get(launch.framework)
    return latest(steps, launch.version) if steps else "bfloat16"


def _rollout(setup: Setup, launch: Launch, machine: Machine) -> Setup:
    value = launch.value
    rollout: Rollout = "colocate"
    if launch.framework == "openrlhf":
        rollout = "colocate" if value("vllm.mode") == "colocate" else "server"
    elif launch.framework != "verl":
        if not value("vllm.use"):
            rollout = "generate"
        elif value("vllm.mode") == "server" or launch.server is not None:
            rollout = "server"
    rows = int(value("rollout.steps_per_generation") or value("train.grad_accumulation") or 1)
    return replace(
        setup,
        rollout=rollout,
        rollout_engine=_rollout_engine(launch, machine.vllm_version),
        completions_per_rank=setup.micro_batch * rows,
        offload_weights=bool(value("offload.model")),
        offload_optimizer=bool(value("offload.optimizer")),
        sync_groups=value("sync.move_model_batches"),
    )


def _rollout_engine(launch: Launch, version: str | None) -> RolloutEngine:
    value = launch.value
    name: Literal["vllm", "sglang"] = "vllm"
    if "sglang" in (launch.framework, value("rollout.engine")):
        name = "sglang"
    share = value("vllm.gpu_memory_utilization")
    if share is None:
        share = latest(facts()[name]["default_share"], version)
    return RolloutEngine(
        name=name,
        version=launch.version if launch.framework in ("vllm", "sglang") else version,
        memory_share=float(share),
        cache_bytes=value("vllm.kv_cache_memory_bytes"),
        tensor_parallel=int(value("vllm.tensor_parallel_size") or 1),
        max_model_len=value("vllm.max_model_len"),
        max_sequences=int(value("vllm.max_num_seqs") or 256),
        eager=bool(value("vllm.enforce_eager")),
        sleep_level=int(value("vllm.sleep_level") or 0),
        lora=bool(value("vllm.enable_lora")),
    )


def _server(
    launch: Launch, machine: Machine, assumptions: list[str], model: ModelShape | None = None
) -> Setup:
    engine = _rollout_engine(launch, machine.vllm_version)
    if model is None or model_name(launch):
        model = _shape(launch)
    if not launch.said("vllm.gpu_memory_utilization"):
        assumptions.append(f"the server takes {engine.memory_share:g} of each card, its default")
    return Setup(
        model,
        machine.server_card_bytes or machine.card_bytes,
        ranks=engine.tensor_parallel,
        framework=launch.framework,
        version=launch.version,
        base_bits=quantized_bits(model_name(launch)) or 16,
        prompt_tokens=engine.max_model_len or model.max_positions or 4096,
        rollout="server",
        rollout_engine=engine,
        host_bytes=machine.host_bytes,
    )
