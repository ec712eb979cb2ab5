"""Runs a case's job under `grpo-doctor run`, and reads what the report says of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grpo_doctor.analysis import analyse
from grpo_doctor.trace.read import load
from tests.frameworks.advice.cases import Case
from tests.frameworks.recorded_jobs import recording
from tests.frameworks.user_code.advice_work import WITHOUT_WAIT, rows

CODE = Path(__file__).parent.parent / "user_code"
# A job needs some ten seconds before its first step; these take a few more.
STEPS = 20
_TIMEOUT_S = 600
_LAST_WORDS = 1500
_BOTH: Mapping[str, Any] = {
    "use_cpu": "true", "per_device_train_batch_size": 4, "num_generations": 4,
    "max_completion_length": 16, "beta": 0.0, "max_steps": STEPS, "logging_steps": 1,
    "save_strategy": "no", "gradient_checkpointing": "false", "report_to": "none",
    "learning_rate": 1e-5, "temperature": 1.0,
}  # fmt: skip


class JobFailedError(RuntimeError):
    """A job that ended with an error; its last words."""


@dataclass(frozen=True)
class Machine:
    """Where a framework is installed, and what its jobs read."""

    python: Path
    model: Path
    data: Path


def write_rows(path: Path) -> Path:
    """The prompts as ms-swift reads them."""
    messages = ([{"role": "user", "content": row}] for row in rows())
    path.write_text("".join(json.dumps({"messages": message}) + "\n" for message in messages))
    return path


def command(case: Case, machine: Machine, folder: Path, seed: int) -> list[str]:
    """What a user would start."""
    own = {**_BOTH, **case.flags, "output_dir": folder / "out", "seed": seed}
    if case.framework == "trl":
        words = [str(machine.python), str(CODE / "advice_trl.py")]
        options = {
            "model_name_or_path": machine.model, "bf16": "false", "disable_tqdm": "true", **own,
        }  # fmt: skip
    else:
        words = [str(machine.python.with_name("swift")), "rlhf"]
        options = {
            "rlhf_type": "grpo", "model": machine.model, "model_type": "qwen2",
            "template": "qwen2_5", "external_plugins": CODE / "advice_swift.py",
            "callbacks": "slow_rows", "tuner_type": "full", "torch_dtype": "float32",
            "reward_funcs": " ".join(case.work.get("judges", WITHOUT_WAIT)),
            "dataset": machine.data, "eval_strategy": "no", "split_dataset_ratio": 0,
            # Its own has 140 tokens, beside which prompts hardly differ in width.
            "system": "Sum.", "dataset_num_proc": 1, "dataloader_num_workers": 0, **own,
        }  # fmt: skip
    for name, value in options.items():
        words += [f"--{name}", *str(value).split()]
    return words


def environment(machine: Machine, work: Mapping[str, Any]) -> dict[str, str]:
    """The variables of the job."""
    return {
        **os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "WANDB_MODE": "offline",
        "TOKENIZERS_PARALLELISM": "false", "DS_ACCELERATOR": "cpu", "PYTHONPATH": str(CODE),
        "WORK": json.dumps(work),
        "PATH": f"{machine.python.parent}{os.pathsep}{os.environ['PATH']}",
    }  # fmt: skip


def record(words: Sequence[str], variables: Mapping[str, str], folder: Path) -> Path:
    """Runs the command under the prefix; where its recording is.

    Raises:
        JobFailedError: the framework refused an option, has a bug, or did not end.
    """
    folder.mkdir(parents=True)
    log = folder / "job.log"
    try:
        with log.open("w") as output:
            done = subprocess.run(
                ["nice", "-n", "19", *recording(folder / "run", "--no-report"), *words],
                cwd=folder, env=dict(variables), stdout=output, stderr=subprocess.STDOUT,
                check=False, timeout=_TIMEOUT_S,
            )  # fmt: skip
    except subprocess.TimeoutExpired as late:
        raise JobFailedError(f"it did not end in {_TIMEOUT_S} s") from late
    if done.returncode:
        raise JobFailedError(log.read_text(errors="replace")[-_LAST_WORDS:])
    return folder / "run"


def report(run: Path) -> dict[str, Any]:
    """The report's document of a recording."""
    ask = [sys.executable, "-m", "grpo_doctor", "report", str(run), "--json"]
    process = subprocess.run(ask, capture_output=True, text=True, check=False)
    if process.returncode:
        raise JobFailedError(f"no report: {process.stderr[-_LAST_WORDS:]}")
    document: dict[str, Any] = json.loads(process.stdout)
    return document


def step_s(run: Path) -> float:
    """Seconds per step of a recording, as a report has them."""
    seconds = analyse(load(run)).step_s
    if not seconds:
        raise JobFailedError("no whole step was recorded")
    return seconds
