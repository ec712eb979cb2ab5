"""Loads the policy, its tokenizer and, when the loss has a KL term, its reference."""

from __future__ import annotations

import copy
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from grpo_doctor_trainer.errors import ModelError
from grpo_doctor_trainer.model.tiny import tiny_model, tiny_tokenizer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from grpo_doctor_trainer.config import TrainerConfig
    from grpo_doctor_trainer.engine import Engine


@dataclass(frozen=True)
class LoadedModel:
    """The policy before it is wrapped for training, and what belongs to it.

    Attributes:
        policy: the model to train, with LoRA adapters if asked for.
        tokenizer: its tokenizer, with a padding token.
        reference: a frozen copy; none with LoRA (the base model serves) and without a KL term.
        end_tokens: the tokens that end a completion.
    """

    policy: Any
    tokenizer: Any
    reference: Any | None
    end_tokens: tuple[int, ...]


def load_model(config: TrainerConfig, dtype: torch.dtype) -> LoadedModel:
    """Loads or makes everything on the CPU.

    Raises:
        ModelError: the model cannot be found or read.
    """
    tokenizer = _load_tokenizer(config)
    policy = _load_weights(config, tokenizer, dtype)
    end_tokens = _end_tokens(policy, tokenizer)
    reference = None
    if config.train_type == "lora":
        policy = _with_adapters(policy, tokenizer, config)
    elif config.beta > 0:
        # Under ZeRO-3 the loaded weights are partitioned already, and a copy would share the parts.
        partitioned = any(hasattr(weight, "ds_id") for weight in policy.parameters())
        reference = (
            _load_weights(config, tokenizer, dtype) if partitioned else copy.deepcopy(policy)
        ).eval()
        reference.requires_grad_(False)
    if config.gradient_checkpointing:
        policy.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        if config.train_type == "lora":
            policy.enable_input_require_grads()
    return LoadedModel(policy, tokenizer, reference, end_tokens)


@contextmanager
def reference_weights(engine: Engine, reference: Any | None) -> Iterator[Any]:
    """Gives the model to ask for reference log-probs: the copy, or the base below the adapters."""
    if reference is not None:
        yield reference
        return
    with engine.module.disable_adapter():
        yield engine.model


def _load_tokenizer(config: TrainerConfig) -> Any:
    if config.model is None:
        return tiny_tokenizer()
    try:
        tokenizer = AutoTokenizer.from_pretrained(config.model)
    except (OSError, ValueError) as error:
        raise ModelError(_cannot_load("tokenizer", config.model, error)) from error
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def _load_weights(config: TrainerConfig, tokenizer: Any, dtype: torch.dtype) -> Any:
    if config.model is None:
        return tiny_model(tokenizer).to(dtype)
    try:
        return AutoModelForCausalLM.from_pretrained(config.model, dtype=dtype)
    except (OSError, ValueError) as error:
        raise ModelError(_cannot_load("model", config.model, error)) from error


def _cannot_load(what: str, name: str, error: Exception) -> str:
    reason = str(error).strip().splitlines()[0]
    if Path(name).exists():
        return f"--model {name}: the folder has no {what} that transformers can read ({reason})"
    return (
        f"--model {name}: no such folder, and no such {what} on Hugging Face that can be reached "
        f"from here ({reason}). Check the name, log in for gated models, or give a local folder."
    )


def _end_tokens(policy: Any, tokenizer: Any) -> tuple[int, ...]:
    ends = policy.generation_config.eos_token_id
    ends = ends if isinstance(ends, list) else [ends]
    return tuple(sorted({end for end in (*ends, tokenizer.eos_token_id) if end is not None}))


def _with_adapters(policy: Any, tokenizer: Any, config: TrainerConfig) -> Any:
    from peft import LoraConfig, get_peft_model  # noqa: PLC0415 - takes a second, and LoRA only

    if config.model is None:
        # Adapters are loaded on top of a base model, so the embedded one has to be somewhere.
        base = Path(config.output_dir).resolve() / "embedded_model"
        policy.name_or_path = str(base)
        if not torch.distributed.is_initialized() or torch.distributed.get_rank() == 0:
            policy.save_pretrained(base)
            tokenizer.save_pretrained(base)
    adapters = LoraConfig(
        r=config.lora_rank,
        lora_alpha=config.lora_alpha,
        lora_dropout=0.0,  # dropout would make the log-probs of the same tokens differ
        target_modules="all-linear",
        task_type="CAUSAL_LM",
    )
    return get_peft_model(policy, adapters)
