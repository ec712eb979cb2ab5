"""Runs the cases and keeps the trace of each."""

from __future__ import annotations

import gzip
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from grpo_doctor.errors import GrpoDoctorError
from grpo_doctor.trace.model import Kind
from grpo_doctor.trace.read import load
from tests.frameworks import environments
from tests.frameworks.inputs import write_model, write_prompts
from tests.frameworks.jobs import Setting, command
from tests.frameworks.recorded_jobs import ENVIRONMENTS
from tests.screen_facts.cases import Case
from tests.screen_facts.screens import path_of

JOBS = Path(__file__).with_name("jobs")
ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
WITHIN_THE_STEP_S = 0.15
START_S = 600.0
_OURS = ("RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "GRPO_DOCTOR")


def record(case: Case, work: Path) -> Path | None:
    """The kept recording; None where the case needs an environment that is not there."""
    python = environments.python_of(ENVIRONMENTS / f"env-{case.python}") if case.python else None
    if python is not None and not python.exists():
        return None
    folder = work / case.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    words, variables = _command(case, python, folder)
    run = folder / case.name
    prefix = (BIN / "grpo-doctor", "run", "--no-report", "--no-live", "-o", run, *case.flags, "--")
    with (folder / "log").open("w") as log:
        job = subprocess.Popen(
            [*map(str, prefix), *words], cwd=folder, env=variables, stdout=log,
            stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        if case.kill is not None:
            _kill(case, run, job)
        job.wait(START_S)
    kept = path_of(case)
    text = (run / "trace.json").read_text(encoding="utf-8")
    for place, name in (
        (JOBS, "/jobs"), (work, "/data"), (BIN, "/usr/bin"), (ENVIRONMENTS, "/environments"),
        (ROOT, "/checkout"),
    ):  # fmt: skip
        text = text.replace(str(place), name)
    kept.parent.mkdir(exist_ok=True)
    with gzip.GzipFile(kept, "wb", mtime=0) as file:
        file.write(text.encode())
    return kept


def _command(case: Case, python: Path | None, folder: Path) -> tuple[list[str], dict[str, str]]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith(_OURS)}
    shared = folder.parent / "inputs"
    model, data = write_model(shared / "model"), write_prompts(shared / "data")
    if python is not None:
        framework, *options = case.words
        setting = Setting(framework, python, model, data, folder, tuple(options))
        words, variables = command(setting)
        return words, {**variables, **case.environment}
    places = {"jobs": str(JOBS), "model": str(model), "folder": str(folder)}
    words = [word.format(**places) for word in case.words]
    if words[0] in ("python", "torchrun"):
        words[0] = str(BIN / words[0])
    return words, {**clean, "OMP_NUM_THREADS": "1", **case.environment}


def _kill(case: Case, run: Path, job: subprocess.Popen[bytes]) -> None:
    """Sends the signal while the step is under way."""
    assert case.kill is not None
    whom, name, step = case.kill
    number = signal.Signals[name]
    rank_pid = _begun(run, step, job)
    time.sleep(WITHIN_THE_STEP_S)
    if whom == "job":
        os.killpg(job.pid, number)
    else:
        os.kill(rank_pid, number)


def _begun(run: Path, step: int, job: subprocess.Popen[bytes]) -> int:
    """Waits for the end of the step before it; the process id of rank 1, else of rank 0."""
    until = time.monotonic() + START_S
    while job.poll() is None and time.monotonic() < until:
        try:
            trace = load(run)
        except (GrpoDoctorError, OSError):
            time.sleep(0.5)
            continue
        spans = trace.spans
        steps = spans.value[spans.kind == Kind.STEP]
        if len(steps) and int(np.max(steps)) >= step - 1:
            ranks = {p.rank: p.os_pid for p in trace.processes if p.role != "worker"}
            return ranks.get(1, ranks[0])
        time.sleep(0.05)
    raise SystemExit(f"{run}: step {step} never began")
