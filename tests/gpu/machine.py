"""What the numbers were measured on."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from tests.gpu.parts import cuda_problem


def machine() -> str:
    """The GPU, driver and versions, in one line."""
    parts = [_gpu(), f"Python {platform.python_version()}"]
    for package in ("torch", "nvidia-ml-py"):
        try:
            parts.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            parts.append(f"no {package}")
    return ", ".join(part for part in parts if part)


def _gpu() -> str:
    if cuda_problem():
        return "no GPU"
    import torch

    cuda: Any = torch.cuda  # what is used of it has no types
    nccl = ".".join(map(str, cuda.nccl.version()))
    return (
        f"{cuda.device_count()} x {cuda.get_device_name(0)}, CUDA {torch.version.cuda}, NCCL {nccl}"
    )
