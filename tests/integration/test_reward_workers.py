"""The processes of the reward functions in real jobs: signals, sudden ends, prints, the trace."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest

from tests.recording import read_rows, spans_file

pytest.importorskip("deepspeed", reason="needs the trainer extra")
pytestmark = [pytest.mark.slow, pytest.mark.heavy]
PATIENCE_S = 120
_RANK = """
import sys, time
import torch
from grpo_doctor_probes import phase, step
from grpo_doctor_trainer.config import TrainerConfig
from grpo_doctor_trainer.data.prompts import PromptBatch
from grpo_doctor_trainer.data.rows import Row
from grpo_doctor_trainer.data.experience import TokenBatch
from grpo_doctor_trainer.interrupts import Interrupted, catch_signals
from grpo_doctor_trainer.rewards.functions import find_rewards
from grpo_doctor_trainer.rewards.scoring import Rewards

catch_signals()
sources = sys.argv[1:]
config = TrainerConfig(reward_funcs=sources, reward_num_workers=2)
with phase("init"):
    rewards = Rewards(find_rewards(sources, {"solution"}), config)
ones = torch.ones(2, 2, dtype=torch.long)
rows = [Row([], {"solution": "2"})] * 2
batch = PromptBatch(rows, ["1+1"] * 2, ones, ones), TokenBatch(ones, ones, ones, ones), ["2", "3"]
try:
    with step(1), phase("reward"):
        print(rewards.score(*batch).tolist(), flush=True)
except Interrupted as stop:
    print("stopped by", stop.signal_number, flush=True)
finally:
    rewards.close()
"""


def start(folder: Path, text: str, *names: str) -> subprocess.Popen[str]:
    (folder / "mine.py").write_text(textwrap.dedent(text), encoding="utf-8")
    sources = [name if name == "accuracy" else f"mine.py:{name}" for name in names]
    more = {"GRPO_DOCTOR_RUN_DIR": str(folder / "run"), "OMP_NUM_THREADS": "1", "RANK": "0"}
    return subprocess.Popen(
        [sys.executable, "-c", _RANK, *sources],
        env=os.environ | more, cwd=folder, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def read_until(process: subprocess.Popen[str], start: str) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(start):
            return
    raise AssertionError(process.communicate()[1])


def gone(processes: list[psutil.Process]) -> bool:
    _, alive = psutil.wait_procs(processes, timeout=PATIENCE_S)
    return not alive


ENDLESS = """
import os, subprocess, time
def hang(completions):
    print("here", os.getpid(), flush=True)
    while True:
        pass
def helper(completions):
    subprocess.run(["sleep", "600"])
"""


def test_workers_end_with_a_rank_that_is_killed(tmp_path: Path) -> None:
    process = start(tmp_path, ENDLESS, "hang")
    read_until(process, "here")
    workers = psutil.Process(process.pid).children()
    assert len(workers) == 1
    process.kill()
    process.communicate(timeout=PATIENCE_S)
    assert gone(workers)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_whole_group_ends_all_in_order(
    tmp_path: Path, number: signal.Signals
) -> None:
    process = start(tmp_path, ENDLESS, "hang", "helper")
    read_until(process, "here")
    rank = psutil.Process(process.pid)
    deadline = time.monotonic() + PATIENCE_S
    while not any(child.name() == "sleep" for child in rank.children(recursive=True)):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    below = rank.children(recursive=True)
    for worker in rank.children():
        worker.send_signal(number)  # as from a scheduler that signals every process
    os.killpg(process.pid, number)
    output, errors = process.communicate(timeout=PATIENCE_S)
    assert (output, errors) == (f"stopped by {number:d}\n", "")
    assert gone(below)


def test_prints_arrive_and_the_trace_tells_waiting_from_working(tmp_path: Path) -> None:
    text = """
    import asyncio, os, sys
    def loud(completions, **columns):
        print("from the worker", "torch" in sys.modules)
        return [1, 2]
    async def patient(completions):
        await asyncio.sleep(0.01)
        return [3, 4]
    """
    process = start(tmp_path, text, "accuracy", "loud", "patient")
    output, errors = process.communicate(timeout=PATIENCE_S)
    assert errors == ""
    assert output == "from the worker False\n[[1.0, 1.0, 3.0], [0.0, 2.0, 4.0]]\n"

    rank = read_rows(spans_file(tmp_path / "run"))
    names = [f"reward/{name}" for name in ("accuracy", "loud", "patient")]
    assert [row.name for row in rank if row.kind == "span"] == ["init", *names, "reward"]
    # A busy machine may also have counted the seconds of a garbage collection.
    counters = {row.name: row.value for row in rank if row.kind == "counter"}
    seconds = {name: value for name, value in counters.items() if name.startswith("reward/")}
    assert list(seconds) == [f"{name}_s" for name in names]
    assert seconds["reward/patient_s"] >= 0.01
    worker_files = [p for p in (tmp_path / "run" / "ranks").glob("*.spans") if "." in p.stem]
    worked = {row.name for path in worker_files for row in read_rows(path)}
    assert worked == set(names)
