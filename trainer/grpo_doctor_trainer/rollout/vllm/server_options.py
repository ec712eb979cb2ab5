"""Checks of the trainer's options for `--vllm_mode server`, without torch and vLLM."""

from __future__ import annotations

from typing import TYPE_CHECKING

from grpo_doctor_trainer.errors import ConfigError

if TYPE_CHECKING:
    from grpo_doctor_trainer.config import TrainerConfig


def check_server_options(config: TrainerConfig) -> None:
    """Raises `ConfigError` for what cannot work with a server; does nothing without one."""
    if not config.use_vllm or config.vllm_mode != "server":
        return
    if not 1 <= config.vllm_server_port <= 65535:
        raise ConfigError(f"--vllm_server_port {config.vllm_server_port} must be 1 to 65535")
    if config.vllm_enable_lora:
        raise ConfigError(
            "--vllm_enable_lora true works with --vllm_mode colocate only: a server gets the "
            "adapters merged into the weights. Leave it out"
        )
    if config.sleep_level:
        raise ConfigError(
            f"--sleep_level {config.sleep_level} works with --vllm_mode colocate only: a server "
            "has devices of its own. Leave it out"
        )
