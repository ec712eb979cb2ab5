"""The command line of the rollout server, and the trainer's options for it."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from grpo_doctor_trainer import flags as trainer_flags
from grpo_doctor_trainer.errors import ConfigError
from grpo_doctor_trainer.flags import SERVER, build_parser, parse_server


def test_without_a_model_the_defaults_suit_the_embedded_one() -> None:
    config = parse_server([])
    assert config.address == "http://127.0.0.1:8000"
    assert (config.model, config.torch_dtype, config.gpu_memory_utilization) == (
        None,
        "float32",
        0.02,
    )
    real = parse_server(["--model", "some/model"])
    assert (real.torch_dtype, real.gpu_memory_utilization) == ("auto", 0.9)


def test_flags_can_be_spelled_as_in_the_trainer() -> None:
    config = parse_server(
        ["--vllm_max_model_len", "99", "--vllm_enforce_eager", "--enable_prefix_caching", "false"]
    )
    assert (config.max_model_len, config.enforce_eager) == (99, True)
    assert not config.enable_prefix_caching


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--prot", "1"], "unknown flag --prot: did you mean --port"),
        (["--port", "70000"], "--port 70000 must be between"),
        (["--port", "x"], "--port"),
        (["--gpu_memory_utilization", "1.5"], "must be above 0 and at most 1"),
        (["--tensor_parallel_size", "0"], "--tensor_parallel_size 0 must be at least 1"),
        (["--enforce_eager", "maybe"], "'maybe' is neither true nor false"),
        (["--torch_dtype", "int8"], "'int8' is not one of auto, float32"),
        (["model"], "'model' does not belong to a flag"),
    ],
)
def test_a_mistake_is_one_message(arguments: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_server(arguments)
    assert message in str(caught.value)


def test_help_has_examples_and_exit_codes() -> None:
    text = build_parser(SERVER).format_help()
    assert "--vllm_mode server" in text
    assert "exit codes" in text


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--vllm_server_port", "0"], "--vllm_server_port 0 must be"),
        (["--vllm_enable_lora", "true"], "--vllm_enable_lora true works with --vllm_mode colocate"),
        (["--sleep_level", "1"], "--sleep_level 1 works with --vllm_mode colocate"),
    ],
)
def test_the_trainer_refuses_what_a_server_cannot_do(flags: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        trainer_flags.parse(["--use_vllm", "true", "--vllm_mode", "server", *flags], 2)
    assert message in str(caught.value)


def serve(folder: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "grpo_doctor_trainer.serve", *flags],
        cwd=folder, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def test_a_taken_port_is_told_at_once(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        process = serve(tmp_path, "--port", str(port))
    assert process.returncode == 2
    assert process.stderr.startswith(f"error: --port {port}: another program listens there already")
    assert "--vllm_server_port" in process.stderr
    assert not list(tmp_path.iterdir())


def test_an_address_that_is_not_ours_is_told(tmp_path: Path) -> None:
    process = serve(tmp_path, "--host", "192.0.2.1", "--port", "0")
    assert process.returncode == 2
    assert "error: --host 192.0.2.1 --port 0: cannot listen there" in process.stderr


def test_a_log_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    process = serve(tmp_path, "--port", "0", "--output_dir", "file/below")
    assert process.returncode == 2
    assert "cannot be written" in process.stderr
