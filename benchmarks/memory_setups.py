"""From the words of a record of measured memory to a setup.

Records leave much out. What is assumed is what the framework does where nothing is said; where
that does not settle it either, the record is unreadable and says why.
"""

from __future__ import annotations

import re
from dataclasses import replace

from benchmarks.memory_records import Config, UnreadableError, flag, is_grpo, is_megatron, number
from benchmarks.memory_rollouts import grpo
from grpo_doctor.memory.cards import card_bytes
from grpo_doctor.memory.models import ModelShape, model_shape, quantized_bits
from grpo_doctor.memory.setup import GIB, Attention, Loss, Recompute, Setup

_UNMODELLED = ("adalora", "llamapro", "bone", "adapter", "boft")
_LENGTHS = frozenset(
    {
        "max_length",
        "max_completion_length",
        "max_prompt",
        "max_prompt_length",
        "max_response",
        "max_response_length",
        "prompt_max_len",
        "seq_len",
        "context",
    }
)
_PIXELS = 1_003_520
_FRAMEWORKS = ("ms-swift", "verl", "easyr1", "trl", "openrlhf", "torchtitan", "firefly",
               "toolbench", "llama-factory", "minicpm-v", "vllm")  # fmt: skip
"""Whose losses and layers are known; the beginnings of their names."""
_PARTS = frozenset(
    {
        "optimizer_in_bwd",
        "activation_offloading",
        "enable_activation_offloading",
        "activation_offload",
    }
)
_OLD_LOSS = frozenset({"ms-swift v2", "Firefly", "ToolBench"})


def setup_of(config: Config, capacity_gb: float | None, source: str, notes: str = "") -> Setup:
    """The setup that a record's configuration describes.

    Raises:
        UnreadableError: something that memory depends on is not said, or not modeled.
        UnknownModelError: the model's shape is not known.
    """
    _refuse(config, source, notes)
    if "/fsdp" in source:
        config = {**config, "fsdp": "fsdp2"}
    if "ddp_device_map" in source:
        config = {**config, "parallel": "device_map", "gpus": 2, "nproc_per_node": None}
    name = re.sub(r"\s*\(.*\)$", "", str(config["model"])).replace("Qwen 14B", "Qwen-14B")
    card = str(config.get("gpu") or "80G").split("(")[0].rstrip("?")
    stated = capacity_gb and not config.get("gpu")  # rounded memory in use, or a size of cards
    setup = Setup(
        model_shape(name),
        round(capacity_gb * GIB) if stated and capacity_gb else card_bytes(card),
        framework=_framework(config),
    )
    setup = _method(setup, config, name)
    setup = _parallel(setup, config)
    if config.get("framework") == "torchtitan":
        return _torchtitan(setup, config)
    setup = _vision(_batch(setup, config), config)
    return grpo(setup, config) if is_grpo(config) else setup


def _refuse(config: Config, source: str, notes: str) -> None:
    framework = str(config.get("framework") or "")
    task = str(config.get("task_type") or "")
    teacher = str(config.get("teacher_model") or "")
    refusals = (
        (not config.get("model"), "no model"),
        ("unsloth" in f"{framework} {config.get('tuner_backend')} {notes}",
         "unsloth's own kernels are not modeled"),
        (config.get("algo") == "inference", "a server alone, without a trainer"),
        ("/lisa/" in source, "tuner not modeled: LISA"),
        (bool(config.get("use_galore")), "optimizer not modeled: GaLore"),
        ("reranker" in task or task == "embedding",
         f"{task}: how many texts a row has is not said"),
        (config.get("rlhf_type") == "ppo", "PPO is not modeled"),
        (teacher.startswith("$"), "a teacher model that is not named"),
        (is_grpo(config) and not _LENGTHS & set(config), "no length of prompts or completions"),
        (config.get("vllm_gpu_memory_utilization") == "tuned", "settings were tuned, and not said"),
        (config.get("backend") == "megatron", "Megatron without its parallel sizes"),
        (bool(config.get("fp8_format")), "training in 8 bits is not modeled"),
        (bool(framework) and not framework.lower().startswith(_FRAMEWORKS),
         f"{framework} is not modeled"),
        (bool(_PARTS & {name for name in config if flag(config, name, False)}),
         "an optimizer in the backward pass or activations on the host are not modeled"),

        (bool(re.search(r"PP\d", str(config.get("parallel")))),
         "torchtitan's pipeline schedules are not modeled"),
    )  # fmt: skip
    for applies, reason in refusals:
        if applies:
            raise UnreadableError(reason)


def _framework(config: Config) -> str:
    name = str(config.get("framework") or "").lower()
    if name.startswith("easyr1"):
        return "verl"
    frameworks = ("ms-swift", "verl", "trl", "openrlhf")
    return next((framework for framework in frameworks if framework in name), name)


def _method(setup: Setup, config: Config, name: str) -> Setup:
    words = [str(config.get(key) or "") for key in ("method", "tuner_type", "train_type")]
    method = " ".join(words).strip().lower()
    if config.get("variant") in ("lora", "full"):
        method = config["variant"]
    if any(tuner in method for tuner in _UNMODELLED):
        raise UnreadableError(f"tuner not modeled: {method}")
    if "lora_llm" in method:
        raise UnreadableError("LoRA on the language model beside a whole vision tower")
    lora = "lora" in method or (not method and config.get("lora_rank") is not None)
    if not method and not lora and not is_megatron(config):
        raise UnreadableError("neither LoRA nor full is said")
    words_rank = re.search(r"r(\d+)", method)
    targets = str(config.get("target_modules") or config.get("lora_target") or "linear")
    frozen = flag(config, "freeze_vit", True) and "incl. vit" not in method
    muon = "muon" in str(config.get("optimizer")) and config.get("variant") != "adam(w)"
    return replace(
        setup,
        method="lora" if lora else "full",
        base_bits=_bits(config, name, method) if lora else 16,
        tables_in_float32="bnb" in f"{config.get('quant')}{config.get('quant_method')}"
        or "qlora" in method,
        lora_rank=number(config, "lora_rank") or int(words_rank.group(1) if words_rank else 8),
        lora_targets="all-linear" if "linear" in targets.lower() else "attention",
        fully_trained_tables=len(str(config.get("modules_to_save") or "").split()),
        freeze_vision=frozen,
        freeze_aligner=flag(config, "freeze_aligner", frozen),
        optimizer="muon" if muon else "adamw" if is_megatron(config) else "adamw_foreach",
    )


def _bits(config: Config, name: str, method: str) -> int:
    quantization = str(config.get("quant") or config.get("quant_bits") or "")
    if "bf16" in quantization:
        return 16
    if "qlora" in method or "4bit" in method or "4" in quantization:
        return 4
    return 8 if "8" in quantization else quantized_bits(name) or 16


def _parallel(setup: Setup, config: Config) -> Setup:
    cards = number(config, "gpus") or 1
    processes = number(config, "nproc", "nproc_per_node")
    ranks = max(processes or cards, cards if config.get("nnodes") else 0)
    zero = str(config.get("deepspeed") or config.get("backend") or config.get("zero_stage") or "")
    stage = re.search(r"[123]", zero)
    unlaunched = "script" in config and not {"nproc", "nproc_per_node"} & set(config)
    if is_megatron(config):
        offload = config.get("optimizer_offload_fraction", 1.0)
        return replace(
            setup,
            engine="megatron",
            ranks=cards,
            tensor_parallel=number(config, "tensor_model_parallel_size", "tp") or 1,
            pipeline_parallel=number(config, "pipeline_model_parallel_size", "pp") or 1,
            expert_parallel=number(config, "expert_model_parallel_size", "ep") or 1,
            optimizer_offload_share=float(offload)
            if flag(config, "optimizer_cpu_offload", False)
            else 0.0,
        )
    if setup.framework == "verl":
        sequence = number(config, "ulysses_sequence_parallel_size", "sequence_parallel_size")
        return replace(
            setup,
            engine="fsdp",
            ranks=cards,
            trained_dtype_bytes=4,
            context_parallel=sequence or 1,
        )
    if config.get("fsdp"):
        return replace(setup, engine="fsdp", ranks=ranks)
    if stage:
        return replace(
            setup,
            engine="deepspeed",
            ranks=ranks,
            zero_stage=int(stage.group()),
            zero_offload_optimizer="offload" in zero,
            zero_offload_parameters="offload" in zero and stage.group() == "3",
            context_parallel=number(config, "sequence_parallel_size") or 1,
        )
    if "device_map" in str(config.get("parallel")) or (unlaunched and cards > 1):
        return replace(setup, engine="device_map", ranks=cards)
    sequence = number(config, "sequence_parallel_size") or 1
    return replace(setup, ranks=ranks, context_parallel=sequence)


def _torchtitan(setup: Setup, config: Config) -> Setup:
    degrees = dict(re.findall(r"(TP|CP)(\d+)", str(config["parallel"])))
    selective = config["activation_checkpoint"] == "selective"
    return replace(
        setup,
        engine="fsdp",
        tensor_parallel=int(degrees.get("TP", 1)),
        context_parallel=int(degrees.get("CP", 1)),
        trained_dtype_bytes=4,
        optimizer="adamw",
        packing=True,
        micro_batch=config["local_batch"],
        prompt_tokens=config["seq_len"],
        recompute="selective" if selective else "full",
    )


def _batch(setup: Setup, config: Config) -> Setup:
    variant = str(config.get("variant") or "")
    unpadded = "without padding_free" in variant or ("Not" in variant and "packing" in variant)
    packing = flag(config, "packing", "context" in config) and not unpadded
    padding_free = flag(config, "padding_free", is_megatron(config)) and not unpadded
    rows = number(config, "micro_batch_size", "per_device_train_batch_size", "batch_size",
                   "micro_train_batch_size", "micro_batch_update", "micro_batch",
                   "ppo_micro_batch_size_per_gpu", "ppo_micro_batch_size")  # fmt: skip
    length = number(config, "max_length", "context", "max_seq_length", "seq_len")
    data = re.search(r"tokens (\d+)\+-(\d+)", str(config.get("dataset")))
    names = (config.get("teacher_model"), config.get("reward_model"))
    beside: tuple[ModelShape, ...] = tuple(model_shape(name) for name in names if name)
    return replace(
        setup,
        micro_batch=1 if packing else rows or 1,
        prompt_tokens=length or 2048,
        packing=packing,
        padding_free=padding_free,
        usual_row_tokens=int(data.group(1)) if data else None,
        longest_row_tokens=sum(map(int, data.groups())) if data else None,
        paired=config.get("rlhf_type") in ("dpo", "rm", "simpo", "orpo", "cpo") and not packing,
        recompute=_recompute(config, variant),
        loss=_loss(config, variant),
        attention=_attention(setup, config),
        expandable_segments="expandable" in str(config.get("PYTORCH_CUDA_ALLOC_CONF")),
        reference=config.get("rlhf_type") in ("dpo", "kto") and setup.method == "full",
        beside=beside,
    )


def _recompute(config: Config, variant: str) -> Recompute:
    if is_megatron(config):
        granularity = config.get("recompute_granularity", "selective")
        return "full" if granularity == "full" else "selective"
    if config.get("fsdp"):  # FSDP's own recomputation, which excludes transformers'
        return "full"
    on = flag(config, "gradient_checkpointing", True) and not variant.startswith("gc false")
    return "full" if on else "none"


def _loss(config: Config, variant: str) -> Loss:
    if config.get("task_type") or config.get("rlhf_type") == "rm":
        return "none"
    if flag(config, "use_liger_kernel", False) and "Not using use_liger" not in variant:
        return "fused"
    if is_megatron(config):
        return "parallel"
    if config.get("rlhf_type") == "gkd":
        return "divergence"
    old = config.get("framework") in _OLD_LOSS
    swift_2 = config.get("framework") == "ms-swift" and not {"script", "context"} & set(config)
    return "amp" if old or swift_2 else "float32"


def _attention(setup: Setup, config: Config) -> Attention:
    """ms-swift v2 took flash attention for Qwen and Baichuan, whatever was asked."""
    fused = setup.model.name.split("/")[0] in ("Qwen", "baichuan-inc")
    old = config.get("framework") == "ms-swift v2" and not fused
    return "eager" if old or config.get("flash_attn") is False else "fused"


def _vision(setup: Setup, config: Config) -> Setup:
    if setup.model.vision is None:
        return setup
    pixels = number(config, "MAX_PIXELS")
    tokens, frame = number(config, "IMAGE_MAX_TOKEN_NUM"), number(config, "VIDEO_MAX_PIXELS")
    if pixels is None and tokens:
        pixels = tokens * setup.model.vision.pixels_per_token
    if pixels is None and frame:
        pixels = frame * (number(config, "FPS_MAX_FRAMES") or 16) // 2
    on = flag(config, "vit_gradient_checkpointing", True)
    return replace(
        setup,
        max_pixels=pixels or _PIXELS,
        vision_recompute=on and "vgc false" not in str(config.get("variant")),
    )
