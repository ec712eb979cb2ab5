"""Settings of a trainer whose ranks have vLLM in them."""

from __future__ import annotations

from typing import Any

import torch

from grpo_doctor_trainer.flags import parse

CPU = torch.device("cpu")


def config(*flags: str, ranks: int = 2) -> Any:
    return parse(["--use_vllm", "true", *flags], ranks)
