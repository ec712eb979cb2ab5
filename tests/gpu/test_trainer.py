"""The bundled trainer with a real-sized random model on real devices."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from grpo_doctor.trace.load import load
from grpo_doctor.trace.model import Kind

pytestmark = [pytest.mark.gpu, pytest.mark.slow, pytest.mark.timeout(900)]
ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 600
WARM_UP_STEPS = 2
STEPS = 8
WORTH_COMPARING = 0.05  # of the step: shorter phases are all launch and noise
CLOSE = 0.03


@pytest.fixture(scope="module")
def ranks() -> int:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    pytest.importorskip("deepspeed", reason="needs the trainer extra")
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device here")
    return int(torch.cuda.device_count())


@pytest.fixture(scope="module")
def model(ranks: int, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Qwen2.5-1.5B's shape with random weights, and a byte tokenizer: nothing is downloaded."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    from grpo_doctor_trainer.model.tiny import tiny_tokenizer

    folder = tmp_path_factory.mktemp("model")
    tokenizer = tiny_tokenizer()
    config = Qwen2Config(
        vocab_size=151_936, hidden_size=1536, intermediate_size=8960, num_hidden_layers=28,
        num_attention_heads=12, num_key_value_heads=2, max_position_embeddings=32_768,
        tie_word_embeddings=True, pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id, bos_token_id=None,
    )  # fmt: skip
    torch.manual_seed(0)
    with torch.device("cuda"):
        made = Qwen2ForCausalLM(config).to(torch.bfloat16)
    made.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def train(
    module: str, model: Path, ranks: int, folder: Path, *flags: str
) -> list[dict[str, float]]:
    """Trains some steps; gives the metrics of each."""
    folder.mkdir()
    data = folder / "data.jsonl"
    rows = [{"prompt": f"What is {a} + {a}?", "solution": str(2 * a)} for a in range(64)]
    data.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone",
        "--nproc_per_node", str(ranks), "-m", module, "--model", str(model),
        "--dataset", str(data), "--output_dir", str(folder / "out"), "--max_steps", str(STEPS),
        "--per_device_train_batch_size", "8", "--num_generations", "8",
        "--max_completion_length", "64", "--logging_steps", "1", "--save_steps", "0", *flags,
    ]  # fmt: skip
    environment = os.environ | {"GRPO_DOCTOR_RUN_DIR": str(folder / "run")}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=PATIENCE_S,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    lines = (folder / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["metrics"] for line in lines]


def phase_seconds(folder: Path) -> dict[str, float]:
    """Rank 0's seconds in each phase, over the steps after the warm-up."""
    frame = load(folder / "run").frame().query("rank == 0")
    steps = frame[frame["kind"] == Kind.STEP.name.lower()]
    begin = steps[steps["value"] > WARM_UP_STEPS]["start_ns"].min()
    spans = frame[(frame["start_ns"] >= begin) & ~frame["name"].str.contains("/")]
    sums: defaultdict[str, float] = defaultdict(float)
    for name, start, end in zip(spans["name"], spans["start_ns"], spans["end_ns"], strict=True):
        sums[name] += (end - start) / 1e9
    return dict(sums)


@pytest.mark.parametrize("engine", ["zero0", "zero2", "zero3", "zero3_offload"])
@pytest.mark.parametrize("train_type", ["lora", "full"])
def test_a_real_size_trains(
    engine: str, train_type: str, ranks: int, model: Path, tmp_path: Path
) -> None:
    steps = train(
        "grpo_doctor_trainer", model, ranks, tmp_path / "job",
        "--deepspeed", engine, "--train_type", train_type, "--reward_funcs", "accuracy", "length",
    )  # fmt: skip
    assert len(steps) == STEPS
    assert all(step["grad_norm"] >= 0 for step in steps)


@pytest.mark.parametrize("engine", ["zero3", "zero3_offload"])
def test_phase_times_are_those_of_a_synchronized_run(
    engine: str, ranks: int, model: Path, tmp_path: Path
) -> None:
    flags = ("--deepspeed", engine, "--train_type", "full", "--gradient_checkpointing", "true")
    train("tests.gpu.synchronized_trainer", model, ranks, tmp_path / "truth", *flags)
    train("grpo_doctor_trainer", model, ranks, tmp_path / "job", *flags)
    truth, found = phase_seconds(tmp_path / "truth"), phase_seconds(tmp_path / "job")
    compared = {name for name, s in truth.items() if s > WORTH_COMPARING * sum(truth.values())}
    assert {"rollout", "train"} <= compared
    for name in compared:
        assert found[name] == pytest.approx(truth[name], rel=CLOSE), name


@pytest.mark.vllm
@pytest.mark.parametrize("sleep_level", ["0", "1", "2"])
def test_colocated_vllm_with_each_sleep_level(
    sleep_level: str, ranks: int, model: Path, tmp_path: Path
) -> None:
    pytest.importorskip("vllm", reason="vLLM is not installed")
    steps = train(
        "grpo_doctor_trainer", model, ranks, tmp_path / "job", "--use_vllm", "true",
        "--vllm_gpu_memory_utilization", "0.4", "--sleep_level", sleep_level,
        "--offload_optimizer", "true", "--offload_model", "true", "--deepspeed", "zero2",
    )  # fmt: skip
    gap = [step["sampling/sampling_logp_difference/mean"] for step in steps]
    assert max(gap) < 0.1  # bfloat16 on both sides; new weights that never arrive show as more
