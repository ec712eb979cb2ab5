"""What a launch says of training, as a setup."""

from __future__ import annotations

from dataclasses import replace

from grpo_doctor.errors import UsageError
from grpo_doctor.launches import Launch
from grpo_doctor.launches.files import BY_TRANSFORMERS
from grpo_doctor.memory.cards import Machine
from grpo_doctor.memory.facts import facts, holds_since, latest
from grpo_doctor.memory.launched_batch import with_batch
from grpo_doctor.memory.models import ModelShape, model_shape, quantized_bits
from grpo_doctor.memory.setup import Engine, Recompute, Setup

_OPTIMIZERS = {"8bit": "adamw_8bit", "muon": "muon", "galore": "galore", "sgd": "sgd",
               "adafactor": "sgd"}  # fmt: skip
"""The optimizer whose state a name with such a part has; the first that fits counts."""
_SHORT_TYPES = frozenset({"bfloat16", "float16", "bf16", "fp16", "auto", "half"})


def model_name(launch: Launch) -> str:
    """The trained model as the launch names it; empty where it names none."""
    return str(launch.model or launch.value("model.name") or "")


def launched_shape(launch: Launch) -> ModelShape:
    """The shape of the model that a launch names."""
    name = model_name(launch)
    if not name:
        raise UsageError("the launch names no model")
    return model_shape(name)


def trainer_of(
    launch: Launch, machine: Machine, assumptions: list[str], shape: ModelShape | None = None
) -> Setup:
    """Return the setup without its rollouts; add each default to `assumptions`."""
    model = shape or launched_shape(launch)
    value = launch.value
    per_node = launch.processes_per_node or value("run.gpus_per_node") or machine.cards_per_node
    if not launch.processes_per_node and launch.visible_gpus:
        per_node = launch.visible_gpus
    nodes = launch.nodes if launch.processes_per_node else value("run.nodes") or machine.nodes
    engine, stage = _engine(launch)
    visible = launch.visible_gpus or 1
    if engine == "torch" and per_node == 1 and visible > 1 and not launch.launcher:
        engine, per_node = "device_map", visible
    rank = value("train.lora_rank", 0) or 0
    kind = value("train.type") or ("lora" if launch.sets("train.lora_rank") and rank else "full")
    targets = str(value("train.lora_targets") or "all-linear")
    mlp = any(word in targets for word in ("all-linear", "gate_proj", "up_proj", "down_proj"))
    loaded_bits = _loaded_bits(launch)
    setup = Setup(
        model,
        machine.card_bytes,
        ranks=per_node * nodes,
        ranks_per_node=per_node,
        engine=engine,
        framework=launch.framework,
        version=launch.version,
        method="lora" if "lora" in str(kind) else "full",
        base_bits=loaded_bits or quantized_bits(model_name(launch)) or model.bits,
        tables_in_float32=loaded_bits > 0,
        lora_rank=rank or 8,
        lora_targets="all-linear" if mlp else "attention",
        freeze_vision=bool(value("train.freeze_vit", launch.framework == "ms-swift")),
        freeze_aligner=bool(value("train.freeze_aligner", launch.framework == "ms-swift")),
        trained_dtype_bytes=_dtype_bytes(launch),
        optimizer=_optimizer(launch),
        zero_stage=stage,
        zero_offload_optimizer=bool(value("deepspeed.offload_optimizer"))
        or bool(value("parallel.fsdp_offload")),
        overlaps_reduction=bool(value("deepspeed.overlap_comm")),
        fused_experts=holds_since(launch.versions.get("transformers"), "5"),
        zero_offload_parameters=bool(value("deepspeed.offload_param")),
        host_bytes=machine.host_bytes,
        loader_workers=int(value("dataload.num_workers") or 0),
    )
    return with_batch(_layout(setup, launch), launch, assumptions)


def _loaded_bits(launch: Launch) -> int:
    """Bits of a frozen weight that bitsandbytes quantizes while it is loaded; 0 if it does not."""
    options = {name.rpartition(".")[2]: str(text).lower() for name, text in launch.options.items()}
    bits = options.get("quant_bits", "")
    if launch.value("train.type") == "qlora" or options.get("load_in_4bit") == "true":
        return 4
    if options.get("load_in_8bit") == "true":
        return 8
    return int(bits) if bits.isdecimal() else 0


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


def _dtype_bytes(launch: Launch) -> int:
    dtype = launch.value("train.dtype") or launch.value("model.dtype")
    if dtype is None or dtype == BY_TRANSFORMERS:
        dtype = _default_dtype(launch, of_script=dtype is not None)
    return 2 if str(dtype).removeprefix("torch.") in _SHORT_TYPES else 4


def _default_dtype(launch: Launch, *, of_script: bool) -> str:
    """The dtype where none is set: TRL's own since 0.26, else that of transformers, which loads in
    float32 before its version 5. `of_script`: the script loads the model itself.
    """
    own, given = launch.version, launch.versions.get("transformers")
    if launch.framework != "trl":
        return "float32" if launch.framework == "verl" else "auto"
    if holds_since(own, "0.26") and not of_script:
        return "float32" if holds_since(own, "0.27") else "auto"
    is_new = holds_since(given, "5") if given else of_script and holds_since(own, "1")
    return "auto" if is_new else "float32"


def _optimizer(launch: Launch) -> str:
    name = str(launch.value("train.optimizer") or "").lower()
    if not name or name in ("adamw_torch", "adamw", "adam"):
        if launch.value("parallel.strategy") == "fsdp2" or launch.framework == "openrlhf":
            return "adamw"
        steps = facts()["optimizer_default"]["since"].get(launch.framework)
        return str(latest(steps, launch.version)) if steps and not name else "adamw_foreach"
    return next((kind for part, kind in _OPTIMIZERS.items() if part in name), "adamw")


def _layout(setup: Setup, launch: Launch) -> Setup:
    value, strategy = launch.value, launch.value("parallel.strategy")
    recompute: Recompute = "full" if value("train.gradient_checkpointing", True) else "none"
    tower = str(launch.options.get("vit_gradient_checkpointing", recompute == "full")).lower()
    if setup.engine == "megatron":
        granularity = value("parallel.recompute")
        recompute = granularity if granularity in ("full", "none") else "selective"
    return replace(
        setup,
        shard_ranks=max(0, int(value("parallel.fsdp_size") or 0)) or None,
        reshards=bool(value("parallel.reshard", True)),
        flat_parameters=strategy != "fsdp2",
        wraps_tables=launch.framework == "verl" and strategy == "fsdp2",
        tensor_parallel=int(value("parallel.tensor") or 1),
        sequence_parallel=bool(value("parallel.sequence", True)),
        pipeline_parallel=int(value("parallel.pipeline") or 1),
        expert_parallel=_expert_ranks(launch, setup.model),
        context_parallel=int(value("parallel.context") or 1),
        distributed_optimizer=bool(value("parallel.distributed_optimizer", True)),
        optimizer_offload_share=_share_on_host(launch),
        recompute=recompute,
        vision_recompute=tower in ("true", "1"),
        activations_on_host=bool(value("train.activation_offload")),
        expandable_segments="expandable_segments:True"
        in launch.environment.get("PYTORCH_CUDA_ALLOC_CONF", ""),
    )


def _expert_ranks(launch: Launch, model: ModelShape) -> int:
    """Ranks that a layer's experts are divided over; without a setting Megatron divides each one as
    it does layers (parallel_state.py)."""
    value = launch.value
    each = value("parallel.expert_tensor") or value("parallel.tensor") if model.experts else 1
    return int(value("parallel.expert") or 1) * int(each or 1)


def _share_on_host(launch: Launch) -> float:
    """Megatron's `optimizer_cpu_offload`, and how much of the state it means."""
    verl = "actor_rollout_ref.actor.optim.override_optimizer_config."
    prefix = verl if launch.framework == "verl" else ""
    on = str(launch.options.get(f"{prefix}optimizer_cpu_offload")).lower()
    share = launch.options.get(f"{prefix}optimizer_offload_fraction", 1.0)
    try:
        return float(share) if on in ("true", "1") else 0.0
    except (TypeError, ValueError):
        return 1.0
