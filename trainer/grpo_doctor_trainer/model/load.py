"""Load the policy, its tokenizer and, when the loss has a KL term, its reference."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoConfig,
    AutoImageProcessor,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoTokenizer,
)

from grpo_doctor_trainer.config import EMBEDDED_VL, TrainerConfig
from grpo_doctor_trainer.engine import Engine
from grpo_doctor_trainer.errors import ConfigError, ModelError
from grpo_doctor_trainer.model.tiny import tiny_model, tiny_processor, tiny_tokenizer, tiny_vl_model
from grpo_doctor_trainer.model.vision import (
    VisionLayout,
    VisionProcessor,
    freeze_parts,
    frozen_modules,
    is_vision_language,
    vision_layout,
)
from grpo_doctor_trainer.validation import NOTHING_TO_TRAIN


def base_model(policy: Any) -> Any:
    """Return the model below the adapters, or the policy itself where it has none."""
    return policy.get_base_model() if hasattr(policy, "get_base_model") else policy


def with_adapters(
    policy: Any, saved_with_weights: Any, config: TrainerConfig, *, has_vision: bool
) -> Any:
    """Put new adapters on the trained parts."""
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
    """Fill the adapters from a checkpoint."""
    from peft import load_peft_weights, set_peft_model_state_dict  # noqa: PLC0415

    weights = load_peft_weights(str(folder), device="cpu")
    missing = set_peft_model_state_dict(policy, weights).unexpected_keys
    if missing:
        raise ModelError(
            f"{folder}: its adapter has weights this model has no place for: {missing}"
        )


@dataclass(frozen=True)
class LoadedModel:
    """The policy before it is wrapped for training, and what belongs to it.

    Attributes:
        policy: the model to train, with LoRA adapters if asked for.
        tokenizer: its tokenizer, with a padding token.
        reference: a frozen copy; none with LoRA (the base model serves) and without a KL term.
        end_tokens: the tokens that end a completion.
        context: the most tokens that the model can take; none if it does not say.
        processor: tokenizer and image processor of a vision-language model, else none.
        vision: how the inputs of a vision-language model are laid out, else none.
    """

    policy: Any
    tokenizer: Any
    reference: Any | None
    end_tokens: tuple[int, ...]
    context: int | None = None
    processor: VisionProcessor | None = None
    vision: VisionLayout | None = None

    @property
    def saved_with_weights(self) -> Any:
        """What has to be saved with the weights to load them again: has `save_pretrained`."""
        return self.processor or self.tokenizer


def load_model(
    config: TrainerConfig, dtype: torch.dtype, trained: Path | None = None
) -> LoadedModel:
    """Load or make everything on the CPU."""
    processor = _load_processor(config)
    tokenizer = processor.tokenizer if processor else _load_tokenizer(config)
    saved = dataclasses.replace(config, model=str(trained)) if trained else config
    policy = _load_weights(
        saved if config.train_type == "full" else config,
        tokenizer,
        dtype,
        with_images=processor is not None,
    )
    end_tokens = _end_tokens(policy, tokenizer)
    context = getattr(policy.config.get_text_config(), "max_position_embeddings", None)
    vision = vision_layout(policy, companion=_needs_companion(config)) if processor else None
    reference = None
    if config.train_type == "full" and config.beta > 0:
        # Under ZeRO-3 the loaded weights are partitioned already, and a copy would share the parts.
        partitioned = any(hasattr(weight, "ds_id") for weight in policy.parameters())
        reference = (
            _load_weights(config, tokenizer, dtype, with_images=processor is not None)
            if partitioned or trained
            else copy.deepcopy(policy)
        ).eval()
        reference.requires_grad_(False)
    if config.train_type == "lora":
        policy = with_adapters(
            policy, processor or tokenizer, config, has_vision=vision is not None
        )
        if trained is not None:
            load_adapters(policy, trained)
    elif vision is not None:
        freeze_parts(policy, config)
    if config.gradient_checkpointing:
        policy.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        if config.train_type == "lora":
            policy.enable_input_require_grads()
    return LoadedModel(policy, tokenizer, reference, end_tokens, context, processor, vision)


@contextmanager
def reference_weights(engine: Engine, reference: Any | None) -> Iterator[Any]:
    """Yield the model to ask for reference log-probs: the copy, or the base below the adapters."""
    if reference is not None:
        yield reference
        return
    with engine.module.disable_adapter():
        yield engine.model


def _load_processor(config: TrainerConfig) -> VisionProcessor | None:
    """Return what a vision-language model needs in addition to its weights, else None."""
    if config.model is None:
        return None
    if config.model == EMBEDDED_VL:
        return tiny_processor()
    try:
        with_images = is_vision_language(AutoConfig.from_pretrained(config.model))
    except (OSError, ValueError):
        return None  # the loading of the tokenizer and the weights says what is wrong
    if not with_images:
        return None
    try:
        images = AutoImageProcessor.from_pretrained(config.model)
    except (OSError, ValueError, ImportError) as error:
        raise ModelError(_cannot_load("image processor", config.model, error)) from error
    tokenizer = _load_tokenizer(config)
    if tokenizer.chat_template is None:
        tokenizer.chat_template = _processors_chat_template(config.model)
    return VisionProcessor(tokenizer, images)


def _processors_chat_template(model: str) -> str | None:
    """Read the template of the whole processor, which tokenizers do not look at."""
    from transformers import ProcessorMixin  # noqa: PLC0415 - vision-language models only

    try:
        settings, _ = ProcessorMixin.get_processor_dict(model)
    except (OSError, ValueError):
        return None  # no processor's files at all
    template = settings.get("chat_template")
    return template if isinstance(template, str) else None


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


def _load_weights(
    config: TrainerConfig, tokenizer: Any, dtype: torch.dtype, *, with_images: bool
) -> Any:
    if config.embedded:
        make = tiny_vl_model if with_images else tiny_model
        return _cast(make(tokenizer, config.embedded_width), dtype)
    kind = AutoModelForImageTextToText if with_images else AutoModelForCausalLM
    try:
        return _with_exact_rotary(kind.from_pretrained(config.model, dtype=dtype))
    except (OSError, ValueError) as error:
        raise ModelError(_cannot_load("model", str(config.model), error)) from error


def _with_exact_rotary(model: Any) -> Any:
    # Under ZeRO-3 a model is built inside deepspeed.zero.Init, which makes every float tensor of
    # the training dtype, rotary frequencies too; anywhere else these are float32.
    for part in list(model.modules()):
        frequencies = getattr(part, "inv_freq", None)
        if frequencies is None or frequencies.dtype == torch.float32 or not hasattr(part, "config"):
            continue
        for name, buffer in type(part)(part.config).named_buffers():
            part.register_buffer(name, buffer.to(frequencies.device), persistent=False)
    return model


def _cast(model: Any, dtype: torch.dtype) -> Any:
    # The weights alone, as from_pretrained does: rotary frequencies are buffers, and in bfloat16
    # the same weights would compute something else when they are loaded from a checkpoint.
    for weight in model.parameters():
        weight.data = weight.data.to(dtype)
    return model


def _needs_companion(config: TrainerConfig) -> bool:
    """Whether ranks wait for each other inside the vision tower (see `inputs.py`)."""
    from transformers.integrations import is_deepspeed_zero3_enabled  # noqa: PLC0415

    if not torch.distributed.is_initialized() or torch.distributed.get_world_size() == 1:
        return False
    trained = not (config.freeze_vit and config.freeze_aligner)
    return trained or bool(is_deepspeed_zero3_enabled())


def _cannot_load(part: str, name: str, error: Exception) -> str:
    reason = str(error).strip().splitlines()[0]
    if Path(name).exists():
        return f"--model {name}: the folder has no {part} that transformers can read ({reason})"
    return (
        f"--model {name}: no such folder, and no such {part} on Hugging Face that can be reached "
        f"from here ({reason}). Check the name, log in for gated models, or give a local folder."
    )


def _end_tokens(policy: Any, tokenizer: Any) -> tuple[int, ...]:
    ends = policy.generation_config.eos_token_id
    ends = ends if isinstance(ends, list) else [ends]
    return tuple(sorted({end for end in (*ends, tokenizer.eos_token_id) if end is not None}))
