"""Plain DDP and DeepSpeed have to be the same mathematics: equal metrics, step by step."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("deepspeed", reason="needs the trainer extra")

from tests.trainer_jobs import run_configs

pytestmark = pytest.mark.slow
COMPARED = ("loss", "grad_norm", "kl", "entropy", "reward", "clip_ratio/region_mean")
# Two steps on each of two rollouts, each from two accumulated micro-batches per rank.
FLAGS = (
    "--max_steps", "4", "--per_device_train_batch_size", "16", "--gradient_accumulation_steps", "2",
    "--num_iterations", "2", "--save_steps", "0", "--offload_model", "true",
    "--offload_optimizer", "true", "--reward_num_workers", "0", "--dataloader_num_workers", "0",
)  # fmt: skip


def test_zero3_and_ddp_take_the_same_steps(tmp_path: Path) -> None:
    outcomes = run_configs(tmp_path, [["--deepspeed", name, *FLAGS] for name in ("none", "zero3")])
    ddp, zero3 = (outcome.metrics for outcome in outcomes)
    assert len(ddp) == len(zero3) == 4
    for left, right in zip(ddp, zero3, strict=True):
        for name in COMPARED:
            assert left[name] == pytest.approx(right[name], rel=1e-3, abs=1e-6), name
    # The second step on a rollout is off-policy, so the old log-probs were used.
    assert ddp[1]["clip_ratio/region_mean"] > 0
