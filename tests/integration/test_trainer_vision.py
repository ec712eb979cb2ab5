"""Vision-language training on two gloo ranks: one with an image, one without, in step."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("deepspeed", reason="needs the trainer extra")
pytestmark = pytest.mark.slow
PATIENCE_S = 240
COMPARED = ("loss", "grad_norm", "kl", "entropy", "reward")
UNFROZEN = ("--freeze_vit", "false", "--freeze_aligner", "false")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A dataset of one row with an image and one without: each rollout, one rank has each."""
    from PIL import Image

    Image.effect_noise((56, 84), 90).save(tmp_path / "picture.png")
    rows: list[dict[str, object]] = [
        {"prompt": "<image>which?", "images": "picture.png"},
        {"prompt": "1+1", "images": None},
    ]
    write_rows(tmp_path / "rows.jsonl", rows)
    # Something every sample differs in, so that each step has gradients.
    source = "def sizes(completions, **columns):\n    return [len(set(c)) for c in completions]\n"
    (tmp_path / "mine.py").write_text(source, encoding="utf-8")
    return tmp_path


def write_rows(path: Path, rows: list[dict[str, object]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def job(folder: Path, *flags: str, name: str = "run") -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2",
        "-m", "grpo_doctor_trainer", "--model", "embedded-vl", "--dataset", "rows.jsonl",
        "--reward_funcs", "mine.py:sizes", "--per_device_train_batch_size", "8",
        "--num_generations", "8", "--save_steps", "0", "--output_dir", "out", *flags,
    ]  # fmt: skip
    recorded = {"GRPO_DOCTOR_RUN_DIR": str(folder / name), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        command, env=os.environ | recorded, cwd=folder, capture_output=True, text=True,
        timeout=PATIENCE_S, check=False,
    )  # fmt: skip


def metrics(folder: Path, *flags: str, name: str = "run") -> list[dict[str, float]]:
    """Runs a job that has to succeed; gives its metrics of each step."""
    done = job(folder, *flags, name=name)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    lines = (folder / name / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["metrics"] for line in lines]


def test_every_engine_takes_the_same_steps_with_a_trained_tower(folder: Path) -> None:
    flags = (*UNFROZEN, "--max_steps", "3")
    ddp, zero2, zero3 = (
        metrics(folder, "--deepspeed", engine, *flags, name=engine)
        for engine in ("none", "zero2", "zero3")
    )
    assert all(step["grad_norm"] > 0 for step in ddp)
    for other in (zero2, zero3):
        assert len(other) == len(ddp) == 3
        for left, right in zip(ddp, other, strict=True):
            for metric in COMPARED:
                assert left[metric] == pytest.approx(right[metric], rel=2e-3, abs=1e-5), metric


def test_a_zero3_checkpoint_is_a_model_to_go_on_with(folder: Path) -> None:
    from transformers import AutoModelForImageTextToText

    from grpo_doctor_trainer.model.tiny_vl import tiny_processor, tiny_vl_model

    layer_by_layer = ("--ds3_gather_for_generation", "false", "--gradient_checkpointing", "true")
    flags = ("--deepspeed", "zero3", "--max_steps", "2", "--save_steps", "2")
    metrics(folder, *flags, *UNFROZEN, *layer_by_layer, "--beta", "0.1")
    checkpoint = folder / "out" / "checkpoint-2"
    weights = AutoModelForImageTextToText.from_pretrained(checkpoint).state_dict()
    first = tiny_vl_model(tiny_processor().tokenizer).state_dict()
    assert weights.keys() == first.keys()
    for part in ("visual.blocks.1.mlp", "visual.merger", "visual.patch_embed", "lm_head"):
        assert any(part in name and not weights[name].equal(first[name]) for name in first), part

    # A folder has a real model's defaults. LoRA, and the tower's layers in ZeRO-3 again.
    lora = ("--model", str(checkpoint), "--train_type", "lora", "--deepspeed", "zero3")
    steps = metrics(
        folder, *lora, "--freeze_vit", "false", "--max_steps", "2", "--save_steps", "2",
        "--max_completion_length", "8", "--output_dir", "adapters", name="lora",
    )  # fmt: skip
    assert all(step["grad_norm"] > 0 for step in steps)
    from safetensors.torch import load_file

    adapters = load_file(folder / "adapters" / "checkpoint-2" / "adapter_model.safetensors")
    changed = {name for name, weight in adapters.items() if "lora_B" in name and weight.any()}
    assert any("visual.blocks" in name for name in changed)
    assert any("language_model" in name for name in changed)
    assert not any("merger" in name for name in adapters)


@pytest.mark.parametrize("damage", ["missing", "behind the header"])
def test_a_bad_image_ends_the_job_by_name_or_is_skipped(folder: Path, damage: str) -> None:
    if damage != "missing":
        (folder / "bad.png").write_bytes((folder / "picture.png").read_bytes()[:-2000])
    rows: list[dict[str, object]] = [
        {"prompt": "a", "images": ["picture.png"]},
        {"prompt": "b", "images": ["bad.png"]},
        {"prompt": "c"},
    ]
    write_rows(folder / "rows.jsonl", rows)
    stopped = job(folder, "--max_steps", "2", "--deepspeed", "none")
    assert stopped.returncode != 0
    assert "rows.jsonl, line 2: image 1 of 1 (bad.png): " in stopped.stderr
    assert "--on_bad_image skip" in stopped.stderr
    assert "grpo_doctor_trainer/" not in stopped.stderr  # no traceback of ours
    assert "DataLoader" not in stopped.stderr

    done = job(folder, "--max_steps", "2", "--deepspeed", "none", "--on_bad_image", "skip")
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    assert "skipped rows.jsonl, line 2: image 1 of 1 (bad.png)" in done.stdout
