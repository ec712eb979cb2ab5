"""Plain DDP and DeepSpeed have to be the same mathematics: equal metrics, step by step."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("deepspeed", reason="needs the trainer extra")
pytestmark = pytest.mark.slow
COMPARED = ("loss", "grad_norm", "kl", "entropy", "reward", "clip_ratio/region_mean")


def run(folder: Path, engine: str) -> list[dict[str, float]]:
    """Two steps on each of two rollouts, each from two accumulated micro-batches per rank."""
    folder.mkdir()
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2",
        "-m", "grpo_doctor_trainer", "--deepspeed", engine, "--max_steps", "4",
        "--per_device_train_batch_size", "16", "--gradient_accumulation_steps", "2",
        "--num_iterations", "2", "--save_steps", "0", "--offload_model", "true",
        "--offload_optimizer", "true",
    ]  # fmt: skip
    environment = os.environ | {"GRPO_DOCTOR_RUN_DIR": str(folder), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, env=environment, cwd=folder, capture_output=True, text=True, timeout=200,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["metrics"] for line in lines]


def test_zero3_and_ddp_take_the_same_steps(tmp_path: Path) -> None:
    ddp, zero3 = run(tmp_path / "ddp", "none"), run(tmp_path / "zero3", "zero3")
    assert len(ddp) == len(zero3) == 4
    for left, right in zip(ddp, zero3, strict=True):
        for name in COMPARED:
            assert left[name] == pytest.approx(right[name], rel=1e-3, abs=1e-6), name
    # The second step on a rollout is off-policy, so the old log-probs were used.
    assert ddp[1]["clip_ratio/region_mean"] > 0
