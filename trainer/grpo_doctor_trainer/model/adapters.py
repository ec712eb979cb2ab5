"""LoRA adapters on a policy: new ones, or those of a checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from grpo_doctor_trainer.config.validation import NOTHING_TO_TRAIN
from grpo_doctor_trainer.errors import ConfigError, ModelError
from grpo_doctor_trainer.model.vision import frozen_modules

if TYPE_CHECKING:
    from grpo_doctor_trainer.config import TrainerConfig


def base_model(policy: Any) -> Any:
    """Gives the model below the adapters, or the policy itself where it has none."""
    return policy.get_base_model() if hasattr(policy, "get_base_model") else policy


def with_adapters(
    policy: Any, saved_with_weights: Any, config: TrainerConfig, *, has_vision: bool
) -> Any:
    """Puts new adapters on the trained parts.

    Raises:
        ConfigError: the options leave nothing to train.
    """
    from peft import LoraConfig, get_peft_model  # noqa: PLC0415 - takes a second, and LoRA only

    if config.embedded:
        # Adapters are loaded on top of a base model, so the embedded one has to be somewhere.
        base = Path(config.output_dir).resolve() / "embedded_model"
        policy.name_or_path = str(base)
        if not torch.distributed.is_initialized() or torch.distributed.get_rank() == 0:
            policy.save_pretrained(base)
            saved_with_weights.save_pretrained(base)
    adapters = LoraConfig(
        r=config.lora_rank,
        lora_alpha=config.lora_alpha,
        lora_dropout=0.0,  # dropout would make the log-probs of the same tokens differ
        target_modules="all-linear",
        exclude_modules=frozen_modules(config) if has_vision else None,
        task_type="CAUSAL_LM",
    )
    try:
        return get_peft_model(policy, adapters)
    except ValueError as error:
        if has_vision and "exclude" in str(error):  # PEFT found no module that is left
            raise ConfigError(NOTHING_TO_TRAIN) from error
        raise


def load_adapters(policy: Any, folder: Path) -> None:
    """Fills the adapters from a checkpoint.

    Raises:
        ModelError: it has weights for which there is no place.
    """
    from peft import load_peft_weights, set_peft_model_state_dict  # noqa: PLC0415

    weights = load_peft_weights(str(folder), device="cpu")
    missing = set_peft_model_state_dict(policy, weights).unexpected_keys
    if missing:
        raise ModelError(
            f"{folder}: its adapter has weights this model has no place for: {missing}"
        )
