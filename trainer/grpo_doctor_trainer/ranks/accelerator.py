"""The Accelerator: the same one whatever launcher started this process."""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any

import torch
from accelerate import Accelerator, DeepSpeedPlugin

from grpo_doctor_trainer.ranks.deepspeed_config import deepspeed_config

if TYPE_CHECKING:
    from grpo_doctor_trainer.config import TrainerConfig
    from grpo_doctor_trainer.ranks.group import Ranks


def default_dtype(config: TrainerConfig, device: torch.device) -> torch.dtype:
    """Resolves `--torch_dtype`."""
    if config.torch_dtype == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    dtype: torch.dtype = getattr(torch, config.torch_dtype)
    return dtype


def make_accelerator(config: TrainerConfig, ranks: Ranks, dtype: torch.dtype) -> Any:
    """Makes the Accelerator. With DeepSpeed this comes before the model is loaded (ZeRO-3 init)."""
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
    """Leaves the decisions to this trainer's flags, however it was launched.

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
    """Imports DeepSpeed's Muon, which nothing here trains with, without torch's compiler.

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
