"""Cells that are not run, each with its reason, and what is run elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.matrix.cells import Cell


@dataclass(frozen=True)
class Gap:
    """Cells that cannot be run without a GPU, and why."""

    cells: str
    reason: str
    covers: Callable[[Cell], bool]


def images_with_vllm(cell: Cell) -> bool:
    return cell.inputs == "vl" and cell.rollout != "transformers"


GAPS: tuple[Gap, ...] = (
    Gap(
        "images with vLLM, colocate and server",
        "vLLM's Qwen2.5-VL imports torchvision, and the package index has no build of it for a "
        "torch without CUDA; a build for CUDA is adapted for the colocated engine's "
        "comparison with the trainer, in `tests/integration/test_vllm_colocate.py`",
        images_with_vllm,
    ),
)

ELSEWHERE: tuple[tuple[str, str], ...] = (
    (
        "exact resuming: plain DDP, each ZeRO stage and offload, both dtypes",
        "tests/integration/test_trainer_resume.py",
    ),
    (
        "torchrun on one node and on two, accelerate launch, the deepspeed launcher",
        "tests/integration/test_trainer_launchers.py",
    ),
    ("rewards that hang, crash or die", "tests/unit/trainer/rewards/test_scoring.py"),
    ("images that cannot be read", "tests/unit/trainer/data/test_bad_images.py"),
    ("memory that runs out", "tests/integration/test_trainer_memory.py"),
    ("an engine that hangs or gets other weights", "tests/integration/test_vllm_colocate.py"),
    (
        "vLLM's own server: weights by file, killed, tensor parallel, waited for",
        "tests/integration/test_vllm_server.py",
    ),
    ("the same math as TRL", "tests/integration/test_trainer_equals_trl.py"),
    ("a real size on GPUs (not run yet: there was no GPU)", "tests/gpu/test_trainer.py"),
)


def gap_of(cell: Cell) -> Gap | None:
    return next((gap for gap in GAPS if gap.covers(cell)), None)
