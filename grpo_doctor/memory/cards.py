"""Memory of cards as a process sees it (`cudaMemGetInfo`), which is less than the name says."""

from __future__ import annotations

import re
from dataclasses import dataclass

from grpo_doctor.errors import UsageError
from grpo_doctor.memory.facts import shipped

_GIB = 1 << 30
_VISIBLE_SHARE = 0.985
"""Of the gigabytes that a card's name promises, where the card itself is not in the table."""
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(?:g|gb|gib)\b")


@dataclass(frozen=True, slots=True)
class Machine:
    """The cards and hosts that a launch gets."""

    card_bytes: int
    cards_per_node: int
    nodes: int = 1
    host_bytes: int | None = None
    server_card_bytes: int | None = None
    vllm_version: str | None = None


def card_bytes(name: str) -> int:
    """Memory of one card: of `A100-80G`, `H20`, `NVIDIA L40S`, or of `24G` without a name.

    Raises:
        UsageError: neither the name is known nor a size is in it.
    """
    plain = re.sub(r"[\s_-]+", "-", name.strip().lower())
    size = _SIZE.search(plain.replace("-", " "))
    for model, row in shipped("cards.json").items():
        before = "0-9" if model[0].isdigit() else "a-z0-9"  # RTX3090 in one word
        if not re.search(rf"(?<![{before}]){model}(?![0-9e])", plain):
            continue
        for variant in map(float, row["gib"]):
            if size is None or abs(float(size.group(1)) - variant) < 0.12 * variant:
                return round(variant * _GIB)
    if size is None:
        raise UsageError(
            f"unknown GPU {name!r}: pass a name, --gpus 8xA100-80G, or its memory, --gpus 8x80G"
        )
    return round(float(size.group(1)) * _GIB * _VISIBLE_SHARE)
