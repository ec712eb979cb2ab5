"""The bundled trainer with a real-sized random model on real devices."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gpu.training import (
    CLOSE,
    STEPS,
    make_model,
    phase_seconds,
    phases_worth_comparing,
    train,
)

pytestmark = [pytest.mark.gpu, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def ranks() -> int:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    pytest.importorskip("deepspeed", reason="needs the trainer extra")
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device here")
    return int(torch.cuda.device_count())


@pytest.fixture(scope="module")
def model(ranks: int, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("model"))


@pytest.mark.parametrize("engine", ["zero0", "zero2", "zero3", "zero3_offload"])
@pytest.mark.parametrize("train_type", ["lora", "full"])
def test_a_real_size_trains(
    engine: str, train_type: str, ranks: int, model: Path, tmp_path: Path
) -> None:
    steps = train(
        "grpo_doctor_trainer", model, ranks, tmp_path / "job",
        "--deepspeed", engine, "--train_type", train_type, "--reward_funcs", "accuracy",
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
    truth = phase_seconds(tmp_path / "truth")
    recorded = phase_seconds(tmp_path / "job", on_device=True)
    compared = phases_worth_comparing(truth)
    assert {"rollout", "train"} <= compared
    for name in compared:
        assert recorded[name] == pytest.approx(truth[name], rel=CLOSE), name


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
