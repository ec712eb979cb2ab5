"""What an engine says of itself, and what is said of one that fails or does not answer."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("torch", reason="needs the trainer extra")

from grpo_doctor_trainer.errors import RolloutError
from grpo_doctor_trainer.rollout.vllm.deadline import EngineDeadline
from grpo_doctor_trainer.rollout.vllm.engine_log import (
    console_to_file,
    explained,
    failure_message,
)
from grpo_doctor_trainer.rollout.vllm.sampling import Completion
from grpo_doctor_trainer.rollout.vllm.statistics import EngineStatistics, totals


def test_statistics_of_a_rollout_and_nothing_left_for_the_next() -> None:
    statistics = EngineStatistics()
    for running, waiting, usage in ((4, 2, 0.25), (2, 0, 0.5)):
        scheduler = SimpleNamespace(
            num_running_reqs=running, num_waiting_reqs=waiting, num_skipped_waiting_reqs=0,
            kv_cache_usage=usage, prefix_cache_stats=SimpleNamespace(queries=10, hits=4),
        )  # fmt: skip
        statistics.record(scheduler, SimpleNamespace(num_preempted_reqs=1), engine_idx=0)
    counted = totals(statistics.statistics(), [Completion([7], [], 3), Completion([7] * 5, [], 4)])
    assert counted["running_requests_peak"] == 4
    assert counted["running_requests_mean"] == 3
    assert counted["waiting_requests_mean"] == 1
    assert counted["kv_cache_peak_pct"] == 50
    assert counted["preemptions"] == 2
    assert (counted["prompt_tokens"], counted["generated_tokens"]) == (7, 6)
    assert (counted["prefix_cache_queried_tokens"], counted["prefix_cache_hit_tokens"]) == (20, 8)
    assert counted["completions_of_1_to_1_tokens"] == 1
    assert counted["completions_of_5_to_8_tokens"] == 1
    assert counted["completions_of_3_to_4_tokens"] == 0
    statistics.finish([Completion([7], [], 3)])
    assert statistics.statistics().steps == 0
    assert statistics.statistics().preemptions == 0


@pytest.mark.parametrize(
    ("error", "todo"),
    [
        (ValueError("No available memory for the cache blocks."), "raise --vllm_gpu_memory_util"),
        (ValueError("memory on startup is less than desired GPU memory"), "lower --vllm_gpu_mem"),
        (
            ValueError("kv cache allocation is less than requested memory for kv"),
            "lower --vllm_gpu",
        ),
        (ValueError("User-specified max_model_len (9) is greater"), "lower --vllm_max_model_len"),
        (RuntimeError("CUDA out of memory. Tried"), "--vllm_max_num_seqs"),
        (ValueError("heads must be divisible by tensor parallel size (2)."), "tensor_parallel"),
    ],
)
def test_a_failure_names_its_reason_the_log_and_the_flag(error: Exception, todo: str) -> None:
    message = failure_message("starting", error, Path("x/rank.log"))
    assert str(error).rstrip(".") in message
    assert todo in message
    assert "x/rank.log" in message


def test_the_traceback_of_a_failure_goes_to_the_log(tmp_path: Path) -> None:
    log = tmp_path / "rank.log"
    with (
        pytest.raises(RolloutError, match="while testing: KeyError: 'no'"),
        explained("testing", log),
    ):
        raise KeyError("no")
    assert "Traceback" in log.read_text()


def test_the_console_goes_to_the_log_and_comes_back(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "rank.log"
    with console_to_file(log):
        os.write(1, b"from below\n")
    os.write(1, b"afterwards\n")
    assert log.read_text() == "from below\n"
    assert capfd.readouterr().out == "afterwards\n"


@pytest.mark.slow
def test_a_deadline_ends_a_wait_and_is_renewed_by_each_answer(tmp_path: Path) -> None:
    deadline = EngineDeadline(3.0, tmp_path / "rank.log")
    with deadline.waiting("testing") as heard:
        for _ in range(7):
            time.sleep(0.5)
            heard()
    started = time.monotonic()
    with (
        pytest.raises(RolloutError, match=r"3 s while testing .*rank\.log"),
        deadline.waiting("testing"),
    ):
        time.sleep(50)
    assert time.monotonic() - started < 25


def test_a_wait_that_never_returns_to_python_ends_the_process(tmp_path: Path) -> None:
    # With its signal blocked, the main thread is as deaf as in a kernel or a collective.
    program = f"""
import signal, time
from pathlib import Path
from grpo_doctor_trainer.rollout.vllm import deadline
deadline._GRACE_S = 0.3
with deadline.EngineDeadline(0.3, Path({str(tmp_path)!r})).waiting("testing"):
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
    time.sleep(50)
"""
    process = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert process.returncode == 2, process.stderr
    assert "error: vLLM did not answer for 0.3 s while testing" in process.stderr
