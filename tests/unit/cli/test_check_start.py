"""What `run` says of a launch before it starts it, and that it starts it in any case."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from grpo_doctor.cli import check, check_memory, check_start, main
from grpo_doctor.cli.check_start import warning
from grpo_doctor.launches import Launch
from tests.unit.cli.attached import Captured

TOO_LARGE = (
    "NPROC_PER_NODE=4 swift rlhf --rlhf_type grpo --model Qwen/Qwen2-7B-Instruct --use_vllm true "
    "--vllm_mode colocate --vllm_gpu_memory_utilization 0.8 --per_device_train_batch_size 2 "
    "--num_generations 8 --max_length 2048 --max_completion_length 1024 --tuner_type lora "
    "--dataset a/b --reward_funcs format"
)
ODD = ["swift", "rlhf", "--rlhf_type", "grpo", "--per_device_train_batch_size", "1",
       "--num_generations", "8", "--gradient_accumulation_steps", "1"]  # fmt: skip


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host with four cards of 24 GB and much memory."""
    monkeypatch.setattr(check, "_present", lambda: check_memory.Gpus(4, "3090", 24 * 10**9))
    monkeypatch.setattr(check_memory, "_memory_here", lambda: 1 << 40)


def test_a_launch_that_does_not_fit_is_said_in_a_line() -> None:
    (line,) = (warning([TOO_LARGE]) or "").splitlines()
    assert line.startswith("check: No: out of memory at startup: vLLM needs")


def test_what_fits_or_is_not_known_is_not_mentioned() -> None:
    assert warning([TOO_LARGE.replace("Qwen2-7B", "Qwen2.5-0.5B").replace("0.8", "0.3")]) is None
    assert warning(["make", "train"]) is None
    assert warning([]) is None
    assert warning(["--max_steps", "3", "--deepspeed", "zero2"], ranks=2) is None


def test_nothing_that_goes_wrong_with_it_is_the_jobs_trouble(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(arguments: object) -> tuple[Launch, None]:
        raise RuntimeError(str(arguments))

    monkeypatch.setattr(check_start, "launch_here", broken)
    assert warning([TOO_LARGE]) is None


def endless(arguments: object) -> tuple[Launch, None]:
    while True:
        pass


def greedy(arguments: object) -> tuple[Launch, None]:
    raise RuntimeError(len(bytearray(2 << 30)))


@pytest.mark.parametrize("reader", [endless, greedy])
def test_what_costs_too_much_to_read_does_not_hold_the_job_up(
    reader: Callable[[object], tuple[Launch, None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check_start, "launch_here", reader)
    line = warning([TOO_LARGE]) or ""
    assert line.startswith("check: the launch was not checked: reading it takes more than")
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def test_a_script_that_names_itself_is_given_up(tmp_path: Path) -> None:
    script = tmp_path / "again.sh"
    script.write_text(f"bash {script} $1\n" * 60)
    warning(["bash", str(script)])  # with what answer is not the point: it comes back


@pytest.mark.parametrize("more", [[], ["--no-check"]])
def test_run_says_it_and_starts_the_job(
    more: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    swift = tmp_path / "swift"
    swift.write_text("#!/bin/sh\nexit 7\n")
    swift.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("NPROC_PER_NODE", "4")
    quiet = ["--no-hooks", "--no-watchdog", "--no-live", "--no-report"]
    folder = tmp_path / "run"
    assert main(["run", "-o", str(folder), *quiet, *more, "--", *ODD]) == 7
    line = "check: No: a rollout of 4 completions is not divisible by num_generations 8"
    assert (line in capsys.readouterr().err) is (not more)
    assert json.loads((folder / "run.json").read_text())["end"]["code"] == 7
