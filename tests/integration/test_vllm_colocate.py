"""Real vLLM engines inside two ranks: weights arrive, log-probs agree, a stuck one is given up."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("deepspeed", reason="needs the trainer extra")
pytest.importorskip("vllm", reason="needs vLLM, any build")
from grpo_doctor.trace.load import load

pytestmark = [pytest.mark.vllm, pytest.mark.slow, pytest.mark.timeout(600)]
JOB = Path(__file__).with_name("vllm_colocate_job.py")
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2")
# In float32 the two differ by the order of additions: 1e-6 measured on x86.
LARGEST_GAP, LARGEST_MEAN_GAP = 1e-3, 1e-5
ADAPTERS = ("--train_type", "lora")


def launch(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "GRPO_DOCTOR_RUN_DIR": str(folder)}
    return subprocess.run(
        [
            sys.executable, *TORCHRUN, *command, "--use_vllm", "true", "--save_steps", "0",
            "--per_device_train_batch_size", "32", "--output_dir", str(folder / "out"),
        ],
        env=environment, cwd=folder, capture_output=True, text=True, timeout=400, check=False,
    )  # fmt: skip


def rounds(folder: Path, *flags: str) -> list[list[dict[str, Any]]]:
    """What each rank found in each round."""
    done = launch(folder, str(JOB), str(folder / "found.json"), *flags)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    return [json.loads((folder / f"found.json.{rank}").read_text()) for rank in range(2)]


@pytest.mark.parametrize(
    "flags",
    [
        ("--deepspeed", "zero2"),
        (
            "--deepspeed", "zero3", *ADAPTERS, "--move_model_batches", "3",
            "--offload_model", "true", "--offload_optimizer", "true",
        ),
        ("--deepspeed", "none", *ADAPTERS, "--vllm_enable_lora", "true"),
        ("--deepspeed", "zero2", "--vllm_tensor_parallel_size", "2"),
    ],
    ids=["full, ZeRO-2", "LoRA merged, ZeRO-3, offload", "adapters alone", "tensor parallel"],
)  # fmt: skip
def test_the_engine_answers_as_the_trainer_would(tmp_path: Path, flags: tuple[str, ...]) -> None:
    found = rounds(tmp_path, *flags)
    for of_rank in found:
        for at in of_rank:
            assert at["untouched"]  # neither a sync nor an offload changes a weight
            assert at["equal"] == 1.0  # greedy completions, the second time after a step
            assert at["gap_max"] < LARGEST_GAP
            assert at["gap_mean"] < LARGEST_MEAN_GAP
            assert at["trained"]
    first, second = (of_rank[0]["tokens"] for of_rank in found)
    assert len({tuple(row) for row in [*first, *second]}) > 60  # of 64: members and ranks differ


def test_a_trained_run_repeats_and_its_trace_has_sync_and_engine(tmp_path: Path) -> None:
    scores = []
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        done = launch(folder, "-m", "grpo_doctor_trainer", "--max_steps", "3")
        assert done.returncode == 0, done.stdout + done.stderr[-4000:]
        assert "vllm" not in done.stdout.lower()  # its log is in its file
        lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        scores.append([json.loads(line)["metrics"]["reward"] for line in lines])
        assert "first sync:" in (folder / "out/vllm/rank_00001.log").read_text()
    assert scores[0] == scores[1]
    trace = load(tmp_path / "one")
    assert {"sync", "sync/gather", "sync/load"} <= set(trace.names)
    generated = [s for s in trace.series if s.name == "engine/generated_tokens"]
    assert [len(series.values) for series in generated] == [3, 3]  # per rank, once per rollout


def test_a_rank_that_never_joins_its_engine_ends_the_job_with_a_message(tmp_path: Path) -> None:
    done = launch(
        tmp_path, str(JOB), str(tmp_path / "found.json"), "--hang",
        "--vllm_tensor_parallel_size", "2",
    )  # fmt: skip
    for left in Path("/dev/shm").glob("*-[[]0-1[]]-cpushm_*"):  # a killed engine leaves them
        left.unlink()
    assert done.returncode != 0
    said = "".join(done.stderr.split("\n"))
    assert re.search(r"did not answer for 8 s while .*rank_00000\.log", said), done.stderr[-4000:]


def test_a_cache_too_small_for_one_prompt_names_the_flag(tmp_path: Path) -> None:
    done = launch(tmp_path, "-m", "grpo_doctor_trainer", "--vllm_gpu_memory_utilization", "0.00001")
    assert done.returncode != 0
    assert "vLLM failed while starting" in done.stderr
    assert "raise --vllm_gpu_memory_utilization" in done.stderr
    assert "rank_00000.log" in done.stderr
