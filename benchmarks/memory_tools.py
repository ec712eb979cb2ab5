"""Estimators that are programs: run on each setup, as their users would call them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from grpo_doctor.memory.setup import GIB, Setup

_SECONDS = 120


def alloc(program: Path) -> Callable[[Setup], float]:
    """`alloc ghost` of the alloc package (0.0.16), told a model's size and width and the batch.

    It knows no LoRA, no ZeRO, no number of cards, no vocabulary and no engine.
    """

    @lru_cache(maxsize=1024)
    def answer(billions: float, width: int, batch: int, length: int) -> float:
        command = [
            *(str(program), "ghost", "none.py", "--json", "--no-config", "--dtype", "bf16"),
            *("--param-count-b", f"{billions:.4f}", "--hidden-dim", str(width)),
            *("--batch-size", str(batch), "--seq-length", str(length)),
        ]
        program_run = subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=_SECONDS
        )
        return float(json.loads(program_run.stdout)["total_gb"]) * GIB

    def estimate(setup: Setup) -> float:
        model = setup.model
        length = setup.prompt_tokens + setup.completion_tokens
        return answer(model.parameters / 1e9, model.hidden, setup.micro_batch, length)

    return estimate
