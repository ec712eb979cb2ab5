"""DeepSpeed's configuration, and the Accelerator: the same one for every launcher."""

from __future__ import annotations

import json
import logging
import os
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from accelerate import Accelerator, DeepSpeedPlugin

from grpo_doctor_trainer.errors import ConfigError
from grpo_doctor_trainer.validation import DEEPSPEED_PRESETS

if TYPE_CHECKING:
    from grpo_doctor_trainer.config import TrainerConfig
    from grpo_doctor_trainer.ranks.group import Ranks


_OWN_SECTIONS = ("optimizer", "scheduler")


def deepspeed_config(
    config: TrainerConfig, *, world_size: int, dtype: str, on_gpu: bool
) -> dict[str, Any]:
    """Make the whole configuration for `--deepspeed`, with nothing left on `auto` that we know."""
    choice = config.deepspeed or "zero0"
    if choice in DEEPSPEED_PRESETS:
        settings: dict[str, Any] = {"zero_optimization": _zero(choice, on_gpu)}
    else:
        settings = _read(Path(choice))
    micro, accumulation = config.per_device_train_batch_size, config.gradient_accumulation_steps
    derived = {
        "train_micro_batch_size_per_gpu": micro,
        "gradient_accumulation_steps": accumulation,
        "train_batch_size": micro * accumulation * world_size,
        "gradient_clipping": config.max_grad_norm,
    }
    for name, value in derived.items():
        _fill(settings, name, value, choice)
    for section, name in (("bf16", "bfloat16"), ("fp16", "float16")):
        _fill(settings.setdefault(section, {}), "enabled", dtype == name, f"{choice}, {section}")
    # DeepSpeedCPUAdam is compiled at start-up; on a machine without a GPU torch's AdamW is on the
    # CPU anyway, so no compiler is asked for.
    settings.setdefault("zero_force_ds_cpu_optimizer", on_gpu)
    return settings


def zero_stage(config: TrainerConfig) -> int | None:
    """Return the stage that `--deepspeed` asks for, and none without DeepSpeed."""
    if config.deepspeed is None:
        return None
    if config.deepspeed in DEEPSPEED_PRESETS:
        return int(config.deepspeed[4])
    return int(_read(Path(config.deepspeed))["zero_optimization"].get("stage", 0))


def fill_sizes(zero: dict[str, Any], hidden_size: int) -> None:
    """Fill the sizes that are still `auto`, as accelerate does where it finds the hidden size.

    It looks for that at the top of the model's configuration; a vision-language model has it below.
    """
    square = hidden_size * hidden_size
    sizes = {
        "reduce_bucket_size": square,
        "stage3_prefetch_bucket_size": int(0.9 * square),
        "stage3_param_persistence_threshold": 10 * hidden_size,
    }
    zero.update({name: size for name, size in sizes.items() if zero.get(name) == "auto"})


def _zero(preset: str, on_gpu: bool) -> dict[str, Any]:
    stage = int(preset[4])
    zero: dict[str, Any] = {"stage": stage}
    if stage:
        zero |= {"overlap_comm": False, "contiguous_gradients": True}
    if stage in {1, 2}:
        zero |= {"reduce_bucket_size": 200_000_000, "allgather_bucket_size": 200_000_000}
    if stage == 3:
        zero |= {
            "reduce_bucket_size": "auto",
            "stage3_param_persistence_threshold": "auto",
            # Rollout and training run through the modules in different orders, and prefetching
            # from the other's order fails: huggingface/trl and ms-swift (#3237) switch it off too.
            "stage3_prefetch_bucket_size": 0,
            "stage3_gather_16bit_weights_on_model_save": True,
        }
    if preset.endswith("_offload"):
        to_host = {"device": "cpu", "pin_memory": on_gpu}
        zero["offload_optimizer"] = to_host
        if stage == 3:
            zero["offload_param"] = dict(to_host)
    return zero


def _read(path: Path) -> dict[str, Any]:
    try:
        settings = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError) as error:
        raise ConfigError(f"--deepspeed {path} cannot be read as JSON: {error}") from None
    if not isinstance(settings, dict) or not isinstance(settings.get("zero_optimization"), dict):
        raise ConfigError(
            f"--deepspeed {path} has no section zero_optimization; add at least a stage"
        )
    for section in _OWN_SECTIONS:
        if section in settings:
            raise ConfigError(
                f"--deepspeed {path}: take the section {section} out; this trainer makes AdamW and "
                "its schedule itself (--learning_rate, --weight_decay, --lr_scheduler_type)"
            )
    return settings


def _fill(settings: dict[str, Any], name: str, value: Any, source: str) -> None:
    written = settings.get(name, "auto")
    if written == "auto":
        settings[name] = value
    elif written != value:
        raise ConfigError(
            f"--deepspeed {source}: {name} is {written}, but the flags of this launch make it "
            f'{value}; write "auto" there, or change the flag'
        )


def default_dtype(config: TrainerConfig, device: torch.device) -> torch.dtype:
    """Resolve `--torch_dtype`."""
    if config.torch_dtype == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    dtype: torch.dtype = getattr(torch, config.torch_dtype)
    return dtype


def make_accelerator(config: TrainerConfig, ranks: Ranks, dtype: torch.dtype) -> Any:
    """Make the Accelerator. With DeepSpeed this comes before the model is loaded (ZeRO-3 init)."""
    on_cpu = ranks.device.type == "cpu"
    _forget_launchers_choices()
    if config.deepspeed is None:
        # Without cpu=True accelerate takes gloo ranks for a single process and wraps nothing.
        return Accelerator(cpu=on_cpu)
    os.environ["ACCELERATE_USE_DEEPSPEED"] = "true"
    _quiet_deepspeed()
    _import_muon_uncompiled()
    settings = deepspeed_config(
        config,
        world_size=ranks.world_size,
        dtype=str(dtype).removeprefix("torch."),
        on_gpu=not on_cpu,
    )
    # Here not cpu=True: that quietly turns DeepSpeed into plain DDP.
    return Accelerator(
        deepspeed_plugin=DeepSpeedPlugin(hf_ds_config=settings),
        gradient_accumulation_steps=config.gradient_accumulation_steps,
    )


def _forget_launchers_choices() -> None:
    """Leave the decisions to this trainer's flags, however it was launched.

    `accelerate launch` puts its own options and its configuration file into the environment, and
    Accelerator takes mixed precision, DeepSpeed, FSDP and more from there before its arguments.
    """
    for name in [name for name in os.environ if name.startswith(("ACCELERATE_", "FSDP_"))]:
        del os.environ[name]


def _quiet_deepspeed() -> None:
    import deepspeed  # noqa: PLC0415
    from deepspeed.utils import logger  # noqa: PLC0415

    logger.setLevel(logging.WARNING)
    # A C++ extension for tensor-parallel inference on CPUs: compiled for half a minute at start-up,
    # and never used in training.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False


def _import_muon_uncompiled() -> None:
    """Import DeepSpeed's Muon, which nothing here trains with, without torch's compiler.

    DeepSpeed imports it to look at any optimizer, and its decorated functions import Inductor at
    once: 550 modules, 1.5 s of each rank's start-up.
    """
    with suppress(ImportError, AttributeError):  # a DeepSpeed without either is left as it is
        compiler: Any = import_module("deepspeed.runtime.compiler")
        compiles = compiler.compile
        compiler.compile = lambda: lambda function: function
        try:
            import_module("deepspeed.runtime.zero.muon.original_muon")
        finally:
            compiler.compile = compiles
