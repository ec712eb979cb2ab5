"""Steps up to a checkpoint and on from it are those of one run, bit by bit, on every engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("deepspeed", reason="needs the trainer extra")

import torch
from safetensors.torch import load_file

from grpo_doctor_trainer.checkpoint import load_safely
from tests.trainer_jobs import Outcome, run_configs

pytestmark = [pytest.mark.slow, pytest.mark.heavy, pytest.mark.timeout(600)]
# Three steps end inside the second rollout, which feeds two: what is left of it is saved too.
STEPS, HALF = 4, 3
SMALL = (
    "--per_device_train_batch_size", "8", "--num_generations", "8", "--num_iterations", "2",
    "--gradient_accumulation_steps", "2", "--max_steps", str(STEPS),
)  # fmt: skip
# Processes for rewards and prompts change no number; the cases with images have them.
ALONE = ("--reward_num_workers", "0", "--dataloader_num_workers", "0")
IMAGES = ("--model", "embedded-vl", "--freeze_vit", "false", "--freeze_aligner", "false")
Case = tuple[str, str, str, tuple[str, ...]]
CASES: dict[str, Case] = {
    "ddp": ("none", "full", "float32", ()),
    "zero0": ("zero0", "full", "float32", ()),
    "zero1": ("zero1", "full", "float32", ()),
    "zero2": ("zero2", "full", "float32", ()),
    "zero3": ("zero3", "full", "float32", ()),
    "zero2_offload": ("zero2_offload", "full", "float32", ()),
    "zero3_offload": ("zero3_offload", "full", "float32", ()),
    "ddp, LoRA": ("none", "lora", "float32", ()),
    "zero2, LoRA": ("zero2", "lora", "float32", ()),
    "zero3, LoRA": ("zero3", "lora", "float32", ()),
    "zero0, bfloat16": ("zero0", "full", "bfloat16", ()),
    "zero2, bfloat16": ("zero2", "full", "bfloat16", ()),
    "zero3, LoRA, bfloat16": ("zero3", "lora", "bfloat16", ()),
    "ddp, images": ("none", "full", "float32", IMAGES),
    "zero3, images": ("zero3", "full", "float32", IMAGES),
    "zero2, LoRA, images": ("zero2", "lora", "float32", IMAGES),
}
Pair = tuple[Outcome, Outcome]


def configs() -> Iterator[list[str]]:
    """Each case whole, with a checkpoint on the way, and once more on from there."""
    for name, (engine, kind, dtype, more) in CASES.items():
        flags = ["--deepspeed", engine, "--train_type", kind, "--torch_dtype", dtype]
        flags += [*SMALL, *more, *(() if more == IMAGES else ALONE)]
        yield [*flags, "--output_dir", name, "--save_steps", str(HALF)]
        start = f"{name}/checkpoint-{HALF}"
        yield [*flags, "--output_dir", f"{name}, on", "--resume_from_checkpoint", start]
    # A job that was cut short: `latest` finds where, and more steps than it had are no mistake.
    short = ["--deepspeed", "zero2", "--output_dir", "short", *SMALL, *ALONE]
    yield [*short, "--max_steps", str(HALF)]
    yield [*short, "--resume_from_checkpoint", "latest", "--save_steps", "0"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("resume")


@pytest.fixture(scope="module")
def every(folder: Path) -> list[Outcome]:
    return run_configs(folder, list(configs()))


@pytest.fixture(scope="module")
def outcomes(every: list[Outcome]) -> dict[str, Pair]:
    return {name: (every[2 * i], every[2 * i + 1]) for i, name in enumerate(CASES)}


def same(left: Any, right: Any) -> bool:
    """Whether two checkpointed trees are equal bit by bit."""
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[k], right[k]) for k in left)
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    if torch.is_tensor(left):
        return left.dtype == right.dtype and torch.equal(left, right)
    return bool(left == right)


def contents(checkpoint: Path) -> dict[str, Any]:
    """Weights, optimizer state, and each rank's progress and random states, by file."""
    saved = {path.name: load_file(path) for path in checkpoint.glob("*.safetensors")}
    for path in checkpoint.glob("*/rank_*.pt"):
        saved[f"{path.parent.name}/{path.name}"] = load_safely(path)
    return saved


@pytest.mark.parametrize("name", CASES)
def test_a_resumed_run_is_the_same_run(outcomes: dict[str, Pair], folder: Path, name: str) -> None:
    whole, resumed = outcomes[name]
    assert (whole.error, resumed.error) == (None, None)
    assert len(whole.metrics) == STEPS
    assert resumed.without_clock() == whole.without_clock()[HALF:]
    assert f"checkpoint-{HALF}: {HALF} of {STEPS} steps done" in resumed.printed
    ours, theirs = (contents(folder / run / f"checkpoint-{STEPS}") for run in (name, f"{name}, on"))
    assert len(ours) >= 4
    assert ours.keys() == theirs.keys()
    assert [file for file in ours if not same(ours[file], theirs[file])] == []


def test_the_latest_checkpoint_goes_on_with_more_steps(
    every: list[Outcome], outcomes: dict[str, Pair]
) -> None:
    short, resumed = every[-2:]
    assert (short.error, resumed.error) == (None, None)
    whole, _ = outcomes["zero2"]
    assert short.without_clock() + resumed.without_clock() == whole.without_clock()


@pytest.mark.parametrize("kind", ["full", "lora"])
def test_every_engine_takes_the_steps_of_plain_ddp(outcomes: dict[str, Pair], kind: str) -> None:
    plain = outcomes["ddp" if kind == "full" else "ddp, LoRA"][0].metrics
    for name, (_, other, dtype, more) in CASES.items():
        if (other, dtype) != (kind, "float32") or more == IMAGES:
            continue
        # The first rollout is the same; later ones part where a rounding error flips a sample.
        for ours, theirs in zip(outcomes[name][0].metrics[:2], plain[:2], strict=True):
            for metric in ("loss", "grad_norm", "reward", "kl"):
                expected = pytest.approx(theirs[metric], rel=1e-3, abs=1e-6)
                assert ours[metric] == expected, (name, metric)


@pytest.mark.usefixtures("every")
def test_checkpoints_keep_the_training_dtype(folder: Path) -> None:
    for name, (_, kind, dtype, _) in CASES.items():
        if kind == "full":
            weights = load_file(folder / name / f"checkpoint-{HALF}" / "model.safetensors")
            assert {str(weight.dtype) for weight in weights.values()} == {f"torch.{dtype}"}, name
