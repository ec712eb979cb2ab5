"""Cells that are not run, each with its reason, and what is run elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.matrix.cells import Cell


@dataclass(frozen=True)
class Gap:
    """Cells that cannot be run without a GPU, and why."""

    what: str
    why: str
    covers: Callable[[Cell], bool]


def images_with_vllm(cell: Cell) -> bool:
    return cell.inputs == "vl" and cell.rollout != "transformers"


GAPS: tuple[Gap, ...] = (
    Gap(
        "images with vLLM, colocate and server",
        "vLLM's Qwen2.5-VL imports torchvision, and the package index has no build of it for a "
        "torch without CUDA",
        images_with_vllm,
    ),
)

ELSEWHERE: tuple[tuple[str, str], ...] = (
    ("exact resuming for every engine", "tests/integration/test_trainer_resume.py"),
)


def gap_of(cell: Cell) -> Gap | None:
    return next((gap for gap in GAPS if gap.covers(cell)), None)
