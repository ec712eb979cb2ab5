"""Is the predicted split of an asynchronous run's GPUs the best one? Real jobs of each split.

`python -m tests.frameworks.splits FOLDER` runs what FOLDER has not recorded yet, and prints the
table of `benchmarks/results/accuracy.md`. A job is TRL's AsyncGRPOTrainer on gloo ranks, one for
each GPU that trains; its steps sleep for each token of a rank's part of the batch. The engine is a
stand-in of `vllm serve` that joins the run: each GPU of it answers so many requests at once, and
each request sleeps. So both sides take time inverse to their GPUs. The GPUs are NVML's stand-in.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from grpo_doctor.findings.rule import Answer, Finding, Fix
from grpo_doctor.findings.rules import gd004_straggler_rank
from grpo_doctor.findings.rules import gd027_starved_trainer as rule
from grpo_doctor.findings.view import RunView
from grpo_doctor.trace.read import load
from tests.fake_nvml.build import FakeNvml
from tests.frameworks.inputs import write_model
from tests.frameworks.recorded_jobs import recording, run_logged
from tests.frameworks.test_async_trl import CODE, python
from tests.integration.test_run import wait_for
from tests.ports import free_port

SAMPLES, STEPS, GPUS = 24, 14, 8


@dataclass(frozen=True)
class Job:
    """What both sides take.

    Attributes:
        token_s: seconds of GPU time to train a token.
        request_s: seconds of a request in an engine.
        places: requests that an engine of one GPU answers at once.
        options: of `AsyncGRPOConfig`.
    """

    token_s: float = 0.035
    request_s: float = 2.0
    places: int = 2
    options: Mapping[str, Any] = field(
        default_factory=lambda: {"queue_maxsize": 2 * SAMPLES, "max_staleness": 16}
    )


JOBS = {
    "even": Job(),
    "slow": Job(token_s=0.02, request_s=3.0),
    "drops": Job(options={"queue_maxsize": 1024, "max_staleness": 1}),
}
# GPUs that train of eight: the batch of 24 samples divides by them.
TRAIN = {"even": (6, 1, 2, 3, 4), "slow": (4, 1, 2, 3), "drops": (1, 2, 3, 4)}


@dataclass(frozen=True)
class Split:
    """A job that has run with so many GPUs on each side, and what the report says of it."""

    train: int
    generate: int
    view: RunView

    @property
    def step_s(self) -> float:
        return self.view.step_s

    @cached_property
    def answer(self) -> Answer:
        return rule.check(self.view)

    @property
    def blamed(self) -> Answer | None:
        """What GD004 says of a rank that is slow, if it does."""
        answer = gd004_straggler_rank.check(self.view)
        return answer if isinstance(answer, Finding) else None

    @cached_property
    def advice(self) -> Fix | None:
        """The first fix, with its prediction."""
        answer = self.answer
        return self.view.predicted(answer.fixes[0]) if isinstance(answer, Finding) else None

    @property
    def moved_to(self) -> int | None:
        """How many GPUs train in the split that is advised."""
        found = _MOVE.match(self.advice.spelling) if self.advice else None
        if found is None:
            return None
        return self.train + int(found[1]) * (-1 if found[2] == "training" else 1)

    @property
    def predicted_s(self) -> tuple[float, float, float] | None:
        """The step time after the advice: low, mid, high."""
        gain = self.advice.predicted if self.advice else None
        if gain is None:
            return None
        low, mid, high = (self.step_s * (1 + pct / 100) for pct in (gain.low, gain.mid, gain.high))
        return low, mid, high


_MOVE = re.compile(r"move (\d+) of the \d+ GPUs of (training|the rollout engine) to ")


@contextmanager
def engine(job: Job, model: Path, generate: int, folder: Path) -> Iterator[str]:
    """`vllm serve` of so many replicas, in the run's recording."""
    program = folder / "bin" / "vllm"
    program.parent.mkdir()
    words = [
        sys.executable, CODE / "vllm_server.py", model / "tokenizer.json", folder, job.request_s,
        job.places * generate,
    ]  # fmt: skip
    program.write_text(f"#!/bin/sh\nexec {shlex.join(map(str, words))}\n")
    program.chmod(0o755)
    serve = (program, "serve", model, "--data-parallel-size", generate)
    prefix = (sys.executable, "-m", "grpo_doctor", "run", "--join", folder / "run", "--")
    with (folder / "engine.log").open("w") as log:
        process = subprocess.Popen(
            [*map(str, (*prefix, *serve))], cwd=folder, stdout=log, stderr=subprocess.STDOUT
        )
    try:
        wait_for((folder / "port").exists)
        yield f"http://127.0.0.1:{(folder / 'port').read_text()}"
    finally:
        process.terminate()
        process.wait()


def run(job: Job, train: int, folder: Path) -> Split:
    """The recording of this split in `folder`; the job runs unless it is there."""
    if not (folder / "run" / "trace.json").exists():
        _record(job, train, GPUS - train, folder)
    return Split(train, GPUS - train, RunView.of(load(folder / "run")))


def _record(job: Job, train: int, generate: int, folder: Path) -> None:
    interpreter = python()
    folder.mkdir(parents=True)
    model = write_model(folder / "model")
    gpus = FakeNvml.build(folder / "nvml")
    (gpus.folder / "orders.txt").write_text(f"gpus {train + generate}\npcie_block_ms 1\n")
    options = {
        "max_steps": STEPS, "per_device_train_batch_size": SAMPLES // train, "num_generations": 2,
        "max_inflight_tasks": 2 * GPUS * job.places, **job.options,
    }  # fmt: skip
    variables = {
        **os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1",
        "PYTHONPATH": str(CODE / "vllm_stand_in"), "TRL_OPTIONS": json.dumps(options),
        "LD_LIBRARY_PATH": str(gpus.folder), "FAKE_NVML": str(gpus.folder / "orders.txt"),
    }  # fmt: skip
    with engine(job, model, generate, folder) as url:
        torchrun = (
            interpreter, "-m", "torch.distributed.run", f"--nproc_per_node={train}",
            f"--master_port={free_port()}", CODE / "trl_async.py", model, folder, url,
            json.dumps({"token": job.token_s}),
        )  # fmt: skip
        words = [*recording(folder / "run", "--no-report"), *map(str, torchrun)]
        code = run_logged(words, variables, folder)
    if code:
        raise RuntimeError((folder / "job.log").read_text()[-3000:])


HEADER = """\
| job | trains : generates | step | advised split | predicted step | step of that split |
|---|---|---|---|---|---|
"""


def row(name: str, split: Split, steps_s: Mapping[int, float]) -> str:
    """A line of the table; `steps_s` are the step times of all splits that ran."""
    to, predicted = split.moved_to, split.predicted_s
    cells = [name, f"{split.train} : {split.generate}", f"{split.step_s:.2f} s"]
    if to is None or predicted is None:
        cells += ["none", "", ""]
    else:
        low, mid, high = predicted
        after = f"{steps_s[to]:.2f} s" if to in steps_s else "not run"
        cells += [f"{to} : {GPUS - to}", f"{mid:.2f} s ({low:.2f} to {high:.2f})", after]
    return f"| {' | '.join(cells)} |\n"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.frameworks.splits")
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("--only", nargs="+", choices=JOBS, default=list(JOBS))
    parser.add_argument("--train", type=int, nargs="+", help="GPUs that train; default: all")
    arguments = parser.parse_args()
    sys.stdout.write(HEADER)
    for name in arguments.only:
        trains = arguments.train or TRAIN[name]
        splits = [run(JOBS[name], train, arguments.folder / name / str(train)) for train in trains]
        steps_s = {split.train: split.step_s for split in splits}
        sys.stdout.writelines(row(name, split, steps_s) for split in splits)
    return 0


if __name__ == "__main__":
    sys.exit(main())
