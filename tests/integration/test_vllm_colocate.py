"""Real vLLM engines inside two ranks: weights arrive, log-probs agree."""

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
from grpo_doctor.trace.read import load

pytestmark = [pytest.mark.vllm, pytest.mark.slow, pytest.mark.timeout(600)]
ROOT = Path(__file__).parents[2]
JOB = Path(__file__).with_name("vllm_colocate_job.py")
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2")
# In float32 the two differ by the order of additions: 1e-6 measured on x86.
LARGEST_GAP, LARGEST_MEAN_GAP = 1e-3, 1e-5


# In one job, one engine after another. Of the last case nothing is left that another could use.
CASES = {
    "full, ZeRO-2": ("rounds", "--deepspeed zero2"),
    "the same again": ("rounds", "--deepspeed zero2"),
    "LoRA merged, ZeRO-3, offload": (
        "rounds",
        "--deepspeed zero3 --train_type lora --move_model_batches 3 --offload_model true",
    ),
    "wrong weights": ("wrong weights", "--deepspeed none --train_type full"),
    "no room": ("never", "--vllm_gpu_memory_utilization 0.00001"),
}
COMPARED = [name for name, (kind, _) in CASES.items() if kind == "rounds"]
Results = dict[str, list[Any]]
# Where `make test-vllm` puts it: in the environment itself it would break transformers' imports.
TORCHVISION = Path(sys.prefix) / "torchvision"
OPERATORS = ROOT / "tests" / "torchvision_operators"


def launch(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "GRPO_DOCTOR_RUN_DIR": str(folder)}
    return subprocess.run(
        [sys.executable, *TORCHRUN, *command],
        env=environment | {"PYTHONPATH": str(ROOT)}, cwd=folder, capture_output=True, text=True,
        timeout=500, check=False,
    )  # fmt: skip


def flags(folder: Path, text: str) -> list[str]:
    return [
        *text.split(), "--use_vllm", "true", "--save_steps", "0",
        "--per_device_train_batch_size", "32", "--output_dir", str(folder / "out"),
    ]  # fmt: skip


def run_job(folder: Path, cases: list[tuple[str, str]]) -> subprocess.CompletedProcess[str]:
    runs = [(kind, flags(folder / str(index), text)) for index, (kind, text) in enumerate(cases)]
    (folder / "cases.json").write_text(json.dumps(runs))
    return launch(folder, str(JOB), str(folder / "found.json"), str(folder / "cases.json"))


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """What each rank found, by case, beside shared memory that a killed job left."""
    folder = tmp_path_factory.mktemp("engines")
    left = [Path(f"/dev/shm/-tp:{number}-[0-1]-cpushm_0") for number in range(len(CASES))]
    for path in left:
        path.touch()
    try:
        done = run_job(folder, list(CASES.values()))
    finally:
        for path in left:
            path.unlink(missing_ok=True)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    per_rank = [json.loads((folder / f"found.json.{rank}").read_text()) for rank in range(2)]
    return dict(zip(CASES, map(list, zip(*per_rank, strict=True)), strict=True))


@pytest.mark.parametrize("case", COMPARED)
def test_the_engine_answers_as_the_trainer_would(results: Results, case: str) -> None:
    for of_rank in results[case]:
        for at in of_rank:
            assert at["untouched"]  # neither a sync nor an offload changes a weight
            assert at["equal"] == 1.0  # greedy completions, the second time after a step
            assert at["gap_max"] < LARGEST_GAP
            assert at["gap_mean"] < LARGEST_MEAN_GAP
            assert at["trained"]
    first, second = (of_rank[0]["tokens"] for of_rank in results[case])
    assert len({tuple(row) for row in [*first, *second]}) > 60  # of 64: members and ranks differ


def test_the_same_run_samples_the_same(results: Results) -> None:
    first, second = results["full, ZeRO-2"], results["the same again"]
    for original, repeat in zip(first, second, strict=True):
        assert [at["tokens"] for at in original] == [at["tokens"] for at in repeat]


@pytest.mark.skipif(not TORCHVISION.is_dir(), reason=f"no torchvision in {TORCHVISION}")
def test_an_engine_sees_the_images_that_the_trainer_sees(tmp_path: Path) -> None:
    cases = tmp_path / "cases.json"
    text = "--model embedded-vl --deepspeed none --per_device_train_batch_size 16"
    cases.write_text(json.dumps([("rounds", flags(tmp_path, text))]))
    path = os.pathsep.join(map(str, (OPERATORS, TORCHVISION, ROOT)))
    done = subprocess.run(
        [sys.executable, str(JOB), str(tmp_path / "found.json"), str(cases)],
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": path}, cwd=tmp_path,
        capture_output=True, text=True, timeout=500, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    (compared,) = json.loads((tmp_path / "found.json.0").read_text())
    for at in compared:
        assert at["equal"] == 1.0
        assert at["gap_max"] < LARGEST_GAP
        assert at["gap_mean"] < LARGEST_MEAN_GAP
        assert at["trained"]


def test_an_engine_with_other_weights_than_the_trainer_ends_every_rank(results: Results) -> None:
    for message in results["wrong weights"]:
        assert re.search(r"does not sample from the weights .* by \d+\.\d\d nats", message)


def test_a_cache_too_small_for_one_prompt_names_the_flag(results: Results) -> None:
    for rank, message in enumerate(results["no room"]):
        assert "vLLM failed while starting" in message
        assert f"rank_0000{rank}.log" in message


def test_the_trace_of_a_run_has_sync_and_engine(tmp_path: Path) -> None:
    done = launch(tmp_path, "-m", "grpo_doctor_trainer", *flags(tmp_path, "--max_steps 3"))
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    assert "INFO" not in done.stdout + done.stderr  # vLLM's log is in its file
    assert "INFO" in (tmp_path / "out/vllm/rank_00001.log").read_text()
    trace = load(tmp_path)
    assert {"sync", "sync/gather", "sync/load"} <= set(trace.names)
    generated = [s for s in trace.series if s.name == "engine/generated_tokens"]
    assert [len(series.values) for series in generated] == [3, 3]  # per rank, once per rollout
