"""The folder that vLLM reads the model's configuration and tokenizer from."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from grpo_doctor_trainer.config import TrainerConfig
    from grpo_doctor_trainer.model.load import LoadedModel
    from grpo_doctor_trainer.ranks.group import Ranks


def engine_folder(config: TrainerConfig) -> Path:
    """Names the folder of all that belongs to engines, in `--output_dir`."""
    return (Path(config.output_dir) / "vllm").resolve()


def model_source(config: TrainerConfig, loaded: LoadedModel, ranks: Ranks) -> str:
    """Gives what vLLM loads: `--model` itself, or a folder of the embedded model.

    The embedded model is written without weights, which the first sync brings; with
    `--vllm_enable_lora` the base model was written when it got its adapters. Every rank calls it.
    """
    if config.model is not None and not config.embedded:
        return config.model
    base = _base(loaded.policy)
    if config.vllm_enable_lora:
        folder = Path(base.name_or_path)
    else:
        first = ranks.rank - ranks.local_rank  # one folder per machine: disks may not be shared
        folder = engine_folder(config) / f"model_{first:05d}"
        if ranks.local_rank == 0:
            _write(base, loaded.saved_with_weights, folder)
    if ranks.world_size > 1:
        torch.distributed.barrier()
    return str(folder)


def _base(policy: Any) -> Any:
    return policy.get_base_model() if hasattr(policy, "peft_config") else policy


def _write(model: Any, companion: Any, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    settings = copy.deepcopy(model.config)
    settings.architectures = [type(model).__name__]
    settings.save_pretrained(folder)
    companion.save_pretrained(folder)
