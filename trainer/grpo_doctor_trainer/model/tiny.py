"""The embedded models: a random Qwen2 and a random Qwen2.5-VL, with a byte-level tokenizer.

Both are made in milliseconds and are the same each time: no download, no file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    PreTrainedTokenizerFast,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2Config,
    Qwen2ForCausalLM,
)
from transformers.integrations import deepspeed

from grpo_doctor_trainer.model.vision import VisionProcessor

_MODEL_SEED = 20_240_917
# Larger than Qwen2's 0.02: at this width the prompt would hardly change the first logits, and the
# policy would settle on one answer for all prompts before it has learned to read them.
_WEIGHT_DEVIATION = 0.05
_PAD, _END = "<|pad|>", "<|end|>"
_SPECIAL_TOKENS = (_PAD, _END, "<|system|>", "<|user|>", "<|assistant|>")
_CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)

_VL_SEED = 20_250_128
_VISION_START, _VISION_END = "<|vision_start|>", "<|vision_end|>"
_IMAGE, _VIDEO = "<|image_pad|>", "<|video_pad|>"
_VISION_TOKENS = (_VISION_START, _VISION_END, _IMAGE, _VIDEO)
_PATCH, _MERGE, _FRAMES = 14, 2, 2  # Qwen2.5-VL's own: 28 x 28 pixels are one token
_LARGEST_IMAGE = 16  # tokens
_EACH_PART = "{% for part in message['content'] %}{% if part['type'] == 'image' %}{{ '"
_VL_CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|' + message['role'] + '|>' }}"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
    + (_EACH_PART + _VISION_START + _IMAGE + _VISION_END)
    + "' }}{% else %}{{ part['text'] }}{% endif %}{% endfor %}{% endif %}{{ '<|end|>' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


def tiny_tokenizer() -> Any:
    """Make a tokenizer with one token per byte, a chat template, and end and padding tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {symbol: number for number, symbol in enumerate(alphabet)}
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(token, special=True) for token in _SPECIAL_TOKENS])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token=_PAD, eos_token=_END, padding_side="left"
    )
    tokenizer.chat_template = _CHAT_TEMPLATE
    return tokenizer


def tiny_model(tokenizer: Any, width: int = 128) -> Any:
    """Make the random model, in float32; the global random state is left as it was."""
    config = Qwen2Config(**_language(tokenizer, width), tie_word_embeddings=False)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(_MODEL_SEED)
        return Qwen2ForCausalLM(config)


def _language(tokenizer: Any, width: int) -> dict[str, Any]:
    return {
        "vocab_size": len(tokenizer),
        "hidden_size": width,
        "intermediate_size": 2 * width,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 2048,
        "initializer_range": _WEIGHT_DEVIATION,
        **_ends(tokenizer),
    }


def _ends(tokenizer: Any) -> dict[str, int | None]:
    ends = {"pad_token_id": tokenizer.pad_token_id, "eos_token_id": tokenizer.eos_token_id}
    return ends | {"bos_token_id": None}


def tiny_processor() -> VisionProcessor:
    """Make the tokenizer, with tokens for images, and the image processor."""
    tokenizer = tiny_tokenizer()
    tokenizer.add_special_tokens({"additional_special_tokens": list(_VISION_TOKENS)})
    tokenizer.chat_template = _VL_CHAT_TEMPLATE
    area = (_PATCH * _MERGE) ** 2
    return VisionProcessor(
        tokenizer,
        _image_processor_class()(
            patch_size=_PATCH,
            merge_size=_MERGE,
            temporal_patch_size=_FRAMES,
            size={"shortest_edge": area, "longest_edge": area * _LARGEST_IMAGE},
        ),
    )


def _image_processor_class() -> Any:
    import transformers  # noqa: PLC0415

    # transformers 5 has two of them; this one needs no torchvision. In 4 there is only one such.
    without_torchvision = getattr(transformers, "Qwen2VLImageProcessorPil", None)
    return without_torchvision or transformers.Qwen2VLImageProcessor


def tiny_vl_model(tokenizer: Any, width: int = 128) -> Any:
    """Make the random model, in float32; the global random state is left as it was."""
    tokens = {
        "image_token_id": tokenizer.convert_tokens_to_ids(_IMAGE),
        "video_token_id": tokenizer.convert_tokens_to_ids(_VIDEO),
        "vision_start_token_id": tokenizer.convert_tokens_to_ids(_VISION_START),
        "vision_end_token_id": tokenizer.convert_tokens_to_ids(_VISION_END),
    }
    language = {
        **_language(tokenizer, width),
        # Half of a head's values, shared out to time, height and width as in Qwen2.5-VL.
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 1e6,
            "mrope_section": [width // 32, 3 * width // 64, 3 * width // 64],
        },
    }
    vision = {
        "depth": 2,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_heads": 4,
        "out_hidden_size": width,
        "patch_size": _PATCH,
        "spatial_merge_size": _MERGE,
        "temporal_patch_size": _FRAMES,
        "window_size": 2 * _PATCH * _MERGE,
        "fullatt_block_indexes": [1],
        "initializer_range": _WEIGHT_DEVIATION,
    }
    config = Qwen2_5_VLConfig(
        text_config=language,
        vision_config=vision,
        tie_word_embeddings=False,
        **tokens,
        **_ends(tokenizer),
    )
    with torch.random.fork_rng(devices=[]), _unpartitioned():
        torch.manual_seed(_VL_SEED)
        return Qwen2_5_VLForConditionalGeneration(config)


@contextmanager
def _unpartitioned() -> Iterator[None]:
    """Hide DeepSpeed's configuration: whole weights are made, and partitioned with the engine.

    Under ZeRO-3 transformers partitions the parts of a composite model while it makes them, and
    then fails to fill the empty shells with random values (seen in 5.19).
    """
    reference = deepspeed._hf_deepspeed_config_weak_ref  # noqa: SLF001 - the only way to set it back
    settings = reference and reference()
    if settings is None:
        yield
        return
    deepspeed.unset_hf_deepspeed_config()
    try:
        yield
    finally:
        deepspeed.set_hf_deepspeed_config(settings)
