"""Every setting that can be printed for one version, as the words of a command line."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

from grpo_doctor import knobs
from grpo_doctor.knobs.model import Kind, Spelling, version_of
from grpo_doctor.knobs.values import ours

SAMPLES: dict[Kind, tuple[Any, ...]] = {
    "bool": (True, False),
    "int": (1, 64),
    "float": (0.35, 1e-6),
    "str": ("lora", "some/file.json"),
    "words": ("1.0 0.5",),
}
# Values that these options check against a list or limits of their own.
TEXTS: dict[str, tuple[Any, ...]] = {
    "deepspeed.preset": ("zero2", "zero3_offload"),
    "vllm.sleep_level": (1, 2),
    "rollout.num_generations": (2, 64),
    "vllm.mode": ("colocate", "server"),
    "vllm.dtype": ("bfloat16", "float32"),
    "vllm.kv_cache_dtype": ("fp8", "bfloat16"),
    "vllm.quantization": ("fp8", "gptq"),
    "rollout.importance_mode": ("token_truncate", "sequence_mask"),
    "train.type": ("lora", "full"),
    "train.router_replay": ("R2", "R3"),
    "train.dtype": ("bfloat16", "float32"),
    "train.optimizer": ("adamw_torch",),
    "model.attention": ("sdpa", "eager"),
    "model.dtype": ("bfloat16", "float32"),
    "train.lr_scheduler": ("linear", "cosine"),
    "train.loss_type": ("grpo", "dapo"),
    "train.importance_level": ("token", "sequence"),
}


def values_of(row: Spelling, kind: Kind) -> tuple[Any, ...]:
    """Canonical values that mean themselves again once they are read back."""
    if not row.values:
        return TEXTS.get(row.knob, SAMPLES[kind])
    return tuple({own for own, text in row.values if text is None or ours(row, kind, text) == own})


def printed(framework: str, version: str | None) -> Iterator[tuple[str, Any, list[str]]]:
    """Knob, value and words of each setting that this version's command line takes."""
    number = version_of(version)
    for knob in knobs.KNOBS:
        rows = [
            row
            for row in knobs.TABLES[framework]
            if row.knob == knob.name and (number is None or row.covers(number))
        ]
        for value in dict.fromkeys(v for row in rows for v in values_of(row, knob.kind)):
            text = knobs.spell(framework, version, knob.name, value)
            if text is not None and "(remove" not in text:
                yield knob.name, value, shlex.split(text)
