"""Options that were given and do nothing in this run: said, because silence looks like consent."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from grpo_doctor_trainer.config import TrainerConfig

_COLOCATED = (
    "sleep_level",
    "vllm_tensor_parallel_size",
    "vllm_gpu_memory_utilization",
    "vllm_enforce_eager",
    "vllm_enable_prefix_caching",
    "vllm_max_num_seqs",
    "vllm_enable_lora",
)
_WITH_VLLM = (*_COLOCATED, "vllm_mode", "vllm_max_model_len", "move_model_batches")
_LORA = ("lora_rank", "lora_alpha")
_VISION = ("freeze_vit", "freeze_aligner", "freeze_llm", "max_pixels", "on_bad_image")


def ignored(config: TrainerConfig, *, takes_images: bool) -> Iterator[str]:
    """Gives one line per group of options that differ from their defaults without an effect."""
    colocated = config.use_vllm and config.vllm_mode == "colocate"
    zero3 = config.deepspeed is None or "zero3" in config.deepspeed or ".json" in config.deepspeed
    for does_something, names, needs in (
        (config.use_vllm, _WITH_VLLM, "--use_vllm true"),
        (colocated or not config.use_vllm, _COLOCATED, "--vllm_mode colocate"),
        (config.train_type == "lora", _LORA, "--train_type lora"),
        (takes_images, _VISION, "a vision-language model"),
        (config.embedded, ("embedded_width",), "an embedded model"),
        (zero3 and not config.use_vllm, ("ds3_gather_for_generation",), "ZeRO-3 without vLLM"),
    ):
        given = [name for name in names if _is_given(config, name)]
        if given and not does_something:
            yield f"{', '.join(f'--{name}' for name in given)}: no effect without {needs}"


def _is_given(config: TrainerConfig, name: str) -> bool:
    option = next(one for one in dataclasses.fields(config) if one.name == name)
    return getattr(config, name) not in (option.default, option.metadata["embedded"])
