"""The embedded vision-language model: a random Qwen2.5-VL that sees images of a few patches.

Like the embedded text model it is made here, in milliseconds and the same each time; saved to a
folder, it loads like any other.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration
from transformers.integrations import deepspeed

from grpo_doctor_trainer.model.tiny import tiny_tokenizer
from grpo_doctor_trainer.model.vision import VisionProcessor

if TYPE_CHECKING:
    from collections.abc import Iterator

_MODEL_SEED = 20_250_128
_WEIGHT_DEVIATION = 0.05  # as in the text model, and for the same reason
_START, _END = "<|vision_start|>", "<|vision_end|>"
_IMAGE, _VIDEO = "<|image_pad|>", "<|video_pad|>"
_PATCH, _MERGE, _FRAMES = 14, 2, 2  # Qwen2.5-VL's own: 28 x 28 pixels are one token
_LARGEST_IMAGE = 16  # tokens
_CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|' + message['role'] + '|>' }}"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
    "{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}"
    "{{ '" + _START + _IMAGE + _END + "' }}"
    "{% else %}{{ part['text'] }}{% endif %}"
    "{% endfor %}{% endif %}"
    "{{ '<|end|>' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


def tiny_processor() -> VisionProcessor:
    """Makes the tokenizer, with tokens for images, and the image processor."""
    tokenizer = tiny_tokenizer()
    tokenizer.add_special_tokens({"additional_special_tokens": [_START, _END, _IMAGE, _VIDEO]})
    tokenizer.chat_template = _CHAT_TEMPLATE
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
    """Makes the random model, in float32; the global random state is left as it was.

    Args:
        tokenizer: the processor's.
        width: of the language model, a multiple of 64; the vision tower stays as it is.
    """
    tokens = {
        "image_token_id": tokenizer.convert_tokens_to_ids(_IMAGE),
        "video_token_id": tokenizer.convert_tokens_to_ids(_VIDEO),
        "vision_start_token_id": tokenizer.convert_tokens_to_ids(_START),
        "vision_end_token_id": tokenizer.convert_tokens_to_ids(_END),
    }
    ends = {
        "pad_token_id": tokenizer.pad_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "bos_token_id": None,
    }
    language = {
        "vocab_size": len(tokenizer),
        "hidden_size": width,
        "intermediate_size": 2 * width,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 2048,
        "initializer_range": _WEIGHT_DEVIATION,
        # Half of a head's values, shared out to time, height and width as in Qwen2.5-VL.
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 1e6,
            "mrope_section": [width // 32, 3 * width // 64, 3 * width // 64],
        },
        **ends,
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
        text_config=language, vision_config=vision, tie_word_embeddings=False, **tokens, **ends
    )
    with torch.random.fork_rng(devices=[]), _unpartitioned():
        torch.manual_seed(_MODEL_SEED)
        return Qwen2_5_VLForConditionalGeneration(config)


@contextmanager
def _unpartitioned() -> Iterator[None]:
    """Hides DeepSpeed's configuration: whole weights are made, and partitioned with the engine.

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
