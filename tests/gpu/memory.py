"""What `grpo-doctor check` foretells of a training step's memory, against the allocator's peak."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from grpo_doctor.trace.read import load
from tests.gpu.parts import Outcome, Wish, problem_without
from tests.gpu.training import ROOT, TrainerError, arguments_of, make_model, train

NEEDED = ("transformers", "deepspeed", "peft", "datasets")
CLOSE = 0.15
LENGTHS = ("--max_steps", "3", "--max_completion_length", "192")
CONFIGURATIONS = {
    "full, ZeRO-2": ("--deepspeed", "zero2", "--train_type", "full"),
    "full, ZeRO-2, checkpointing": (
        "--deepspeed", "zero2", "--train_type", "full", "--gradient_checkpointing", "true",
    ),
    "LoRA, ZeRO-2": ("--deepspeed", "zero2", "--train_type", "lora"),
    "LoRA, no DeepSpeed": ("--train_type", "lora", "--gradient_checkpointing", "true"),
}  # fmt: skip


def run(wish: Wish, outcome: Outcome) -> None:
    """Each configuration: foretold, then trained."""
    if problem := problem_without(*NEEDED):
        outcome.skips("memory", problem)
        return
    model = make_model(wish.folder / "model")
    for name, flags in CONFIGURATIONS.items():
        folder = wish.folder / name.replace(" ", "-").replace(",", "")
        try:
            train("grpo_doctor_trainer", model, 1, folder, *flags, *LENGTHS)
        except TrainerError as error:
            outcome.says(name, False, f"the trainer failed: {str(error)[-600:]}")
            continue
        low, middle, high = _foretold(model, folder, *flags, *LENGTHS)
        allocated, reserved = _peaks(folder)
        apart = middle / reserved - 1
        outcome.says(
            name,
            abs(apart) < CLOSE or low <= reserved <= high,
            f"foretold {_gib(middle)} ({_gib(low)} to {_gib(high)}), reserved at most "
            f"{_gib(reserved)}, allocated {_gib(allocated)}: {100 * apart:+.0f}%",
        )


def _foretold(model: Path, folder: Path, *flags: str) -> tuple[float, float, float]:
    """Low, middle and high bytes of the phase that takes the most, without the CUDA context."""
    launch = arguments_of(model, folder, *flags)
    command = [sys.executable, "-m", "grpo_doctor", "check", "--json", "--", *launch]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    try:
        pools = json.loads(done.stdout)["memory"]["pools"]
    except (ValueError, KeyError, TypeError) as error:
        raise TrainerError(f"check said no memory: {done.stdout[-300:]}{done.stderr}") from error
    phases = next(pool["phases"] for pool in pools if pool["role"] == "train")
    peak = max(phases, key=lambda phase: phase["bytes"])
    context = sum(
        entry["bytes"] for entry in peak["entries"] if entry["name"] == "CUDA context"
    )  # the allocator does not count it
    low, middle, high = (peak[end] - context for end in ("low_bytes", "bytes", "high_bytes"))
    return low, middle, high


def _peaks(folder: Path) -> tuple[float, float]:
    """The largest bytes that tensors took, and that the allocator held."""
    frame = load(folder / "run").frame()
    counted = {
        name: float(frame[frame["name"] == f"memory/{name}_peak"]["value"].max())
        for name in ("allocated", "reserved")
    }
    return counted["allocated"], counted["reserved"]


def _gib(size_bytes: float) -> str:
    return f"{size_bytes / 2**30:.1f} GiB"
