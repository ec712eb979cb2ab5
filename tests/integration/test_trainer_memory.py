"""Memory that really runs out: the message names the phase, and what to change."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("deepspeed", reason="needs the trainer extra")
pytestmark = [pytest.mark.slow, pytest.mark.heavy]
PATIENCE_S = 120
# A reward function runs between rollout and training; this one leaves the process 30 MB to grow.
LIMIT = """\
import os, resource

def limit(completions, **columns):
    if os.environ.get("RANK", "0") == os.environ["LIMITED_RANK"]:
        pages = int(open("/proc/self/statm").read().split()[0])
        most = pages * os.sysconf("SC_PAGE_SIZE") + 30_000_000
        resource.setrlimit(resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))
    return [1.0] * len(completions)
"""


def job(folder: Path, launch: list[str], *flags: str, limited: int) -> str:
    """Runs a job that has to fail; returns what it wrote to stderr."""
    (folder / "limit.py").write_text(LIMIT, encoding="utf-8")
    process = subprocess.run(
        [sys.executable, *launch, "-m", "grpo_doctor_trainer", "--reward_funcs", "limit.py:limit",
         "--reward_num_workers", "0", "--dataloader_num_workers", "0", "--max_steps", "2",
         "--num_generations", "8", *flags],
        cwd=folder, env=os.environ | {"OMP_NUM_THREADS": "1", "LIMITED_RANK": str(limited)},
        capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert process.returncode != 0, process.stdout
    return process.stderr


def test_the_other_ranks_point_at_the_one_that_failed(tmp_path: Path) -> None:
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    flags = ("--per_device_train_batch_size", "1024")
    message = job(tmp_path, launch, *flags, limited=1)
    assert "error: rank 1 ran out of memory in phase logprob on cpu" in message
    assert "try --per_device_train_batch_size 512 --gradient_accumulation_steps 2" in message
    assert "grpo_doctor_trainer/" not in message  # no traceback of ours
