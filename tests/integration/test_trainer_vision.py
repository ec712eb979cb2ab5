"""Vision-language training on two gloo ranks: one with an image, one without, in step."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

pytest.importorskip("deepspeed", reason="needs the trainer extra")

from tests.trainer_jobs import Outcome, run_configs

pytestmark = [pytest.mark.slow, pytest.mark.heavy]
PATIENCE_S = 120
COMPARED = ("loss", "grad_norm", "kl", "entropy", "reward")
BASE = (
    "--model", "embedded-vl", "--dataset", "rows.jsonl", "--reward_funcs", "mine.py:sizes",
    "--per_device_train_batch_size", "8", "--num_generations", "8", "--save_steps", "0",
    "--output_dir", "out",
)  # fmt: skip
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


def outcomes(folder: Path, *runs: Sequence[str]) -> list[Outcome]:
    """Trains with each list of flags in turn, in one job."""
    return run_configs(folder, [[*BASE, *flags] for flags in runs])


def test_every_engine_takes_the_same_steps_with_a_trained_tower(folder: Path) -> None:
    flags = (*UNFROZEN, "--max_steps", "3")
    engines = ("none", "zero2", "zero3")
    runs = outcomes(folder, *(("--deepspeed", engine, *flags) for engine in engines))
    ddp, zero2, zero3 = (outcome.metrics for outcome in runs)
    assert all(step["grad_norm"] > 0 for step in ddp)
    for other in (zero2, zero3):
        assert len(other) == len(ddp) == 3
        for left, right in zip(ddp, other, strict=True):
            for metric in COMPARED:
                assert left[metric] == pytest.approx(right[metric], rel=2e-3, abs=1e-5), metric


def test_a_zero3_checkpoint_is_a_model_to_go_on_with(folder: Path) -> None:
    from transformers import AutoModelForImageTextToText

    from grpo_doctor_trainer.model.tiny import tiny_processor, tiny_vl_model

    checkpoint = folder / "out" / "checkpoint-2"
    saved = ("--deepspeed", "zero3", "--max_steps", "2", "--save_steps", "2")
    # A folder has a real model's defaults. LoRA, and the tower's layers in ZeRO-3 again.
    lora = (
        "--model", str(checkpoint), "--train_type", "lora", "--freeze_vit", "false",
        "--max_completion_length", "8", "--output_dir", "adapters",
    )  # fmt: skip
    whole = (*saved, *UNFROZEN, "--gradient_checkpointing", "true", "--beta", "0.1")
    _, later = outcomes(folder, whole, (*saved, *lora))
    weights = AutoModelForImageTextToText.from_pretrained(checkpoint).state_dict()
    first = tiny_vl_model(tiny_processor().tokenizer).state_dict()
    assert weights.keys() == first.keys()
    for part in ("visual.blocks.1.mlp", "visual.merger", "visual.patch_embed", "lm_head"):
        assert any(part in name and not weights[name].equal(first[name]) for name in first), part
    assert all(step["grad_norm"] > 0 for step in later.metrics)
    from safetensors.torch import load_file

    adapters = load_file(folder / "adapters" / "checkpoint-2" / "adapter_model.safetensors")
    changed = {name for name, weight in adapters.items() if "lora_B" in name and weight.any()}
    assert any("visual.blocks" in name for name in changed)
    assert any("language_model" in name for name in changed)
    assert not any("merger" in name for name in adapters)
