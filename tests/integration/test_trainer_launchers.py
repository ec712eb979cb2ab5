"""The same steps whoever starts the trainer: torchrun on two nodes, accelerate, deepspeed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ports import free_port

pytest.importorskip("deepspeed", reason="needs the trainer extra")
pytestmark = [pytest.mark.slow, pytest.mark.heavy]
PATIENCE_S = 240
BIN = Path(sys.executable).parent
FLAGS = (
    "--max_steps", "2", "--save_steps", "0", "--per_device_train_batch_size", "16",
    "--num_generations", "8",
)  # fmt: skip
MODULE = "grpo_doctor_trainer"
LAUNCHERS = {
    # What accelerate would change by itself: mixed precision, and an engine of its own.
    "accelerate": ("accelerate", "launch", "--multi_gpu", "--num_processes", "2",
                   "--mixed_precision", "bf16", "--main_process_port", "{port}", "-m", MODULE),
    "accelerate with deepspeed": (
        "accelerate", "launch", "--use_deepspeed", "--zero_stage", "3", "--num_processes", "2",
        "--mixed_precision", "bf16", "--main_process_port", "{port}", "-m", MODULE,
    ),
    # It adds --local_rank=N to the command of each rank.
    "deepspeed": ("deepspeed", "--num_gpus", "2", "--master_port", "{port}", "--module", MODULE),
}  # fmt: skip


def environment(folder: Path) -> dict[str, str]:
    # DS_ACCELERATOR: the launcher itself counts devices on a machine without a GPU.
    more = {"GRPO_DOCTOR_RUN_DIR": str(folder / "run"), "OMP_NUM_THREADS": "1"}
    return os.environ | more | {"DS_ACCELERATOR": "cpu"}


def losses(folder: Path) -> list[float]:
    lines = (folder / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["metrics"]["loss"] for line in lines]


def start(folder: Path, *command: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [str(BIN / command[0]), *command[1:], *FLAGS], cwd=folder, env=environment(folder),
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


@pytest.fixture(scope="module")
def two_nodes(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[float], list[str]]:
    """Two torchrun agents on this host, as on two machines with one rank each."""
    folder = tmp_path_factory.mktemp("nodes")
    meeting = f"localhost:{free_port()}"
    nodes = [
        start(
            folder, "torchrun", "--nnodes", "2", "--node_rank", str(number), "--nproc_per_node",
            "1", "--rdzv_backend", "c10d", "--rdzv_endpoint", meeting, "--rdzv_id", "test",
            "-m", MODULE,
        )
        for number in (0, 1)
    ]  # fmt: skip
    printed = [node.communicate(timeout=PATIENCE_S)[0] for node in nodes]
    assert [node.returncode for node in nodes] == [0, 0], printed
    return losses(folder), printed


def test_two_nodes_are_one_job(two_nodes: tuple[list[float], list[str]]) -> None:
    steps, printed = two_nodes
    assert len(steps) == 2
    assert sum("2 CPU ranks" in text for text in printed) == 1  # rank 0 alone speaks


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_every_launcher_gives_the_same_steps(
    tmp_path: Path, two_nodes: tuple[list[float], list[str]], launcher: str
) -> None:
    process = start(tmp_path, *(part.format(port=free_port()) for part in LAUNCHERS[launcher]))
    printed, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, printed
    assert "2 CPU ranks, 1 thread each, DeepSpeed ZeRO-2" in printed
    assert "(full), float32" in printed
    assert losses(tmp_path) == two_nodes[0]
