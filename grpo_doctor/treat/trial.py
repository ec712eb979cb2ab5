"""One short run of a command, through `grpo-doctor run`: it ends after so many steps, whole."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from grpo_doctor.analysis import Analysis, analyse
from grpo_doctor.analysis.per_step import counted
from grpo_doctor.compare.run import TOKENS
from grpo_doctor.errors import GrpoDoctorError, LaunchError
from grpo_doctor.trace.read import load
from grpo_doctor.treat.decision import MEASURED, OUT_OF_MEMORY
from grpo_doctor_probes.record.redact import redact_text
from grpo_doctor_probes.record.rundir import RUN_JSON
from grpo_doctor_probes.supervisor.deaths import DeathWatch
from grpo_doctor_probes.supervisor.members import Members
from grpo_doctor_reports.schema.treat import TrialEntry

LOG, OUTPUT = "job.log", "out"
LEAST_STEPS = 4
# Trackers of the user's must not list trials.
_ENVIRONMENT = {"WANDB_MODE": "disabled", "SWANLAB_MODE": "disabled", "COMET_MODE": "disabled"}
_OUT_OF_MEMORY = re.compile(r"out of memory|OutOfMemoryError|Cannot allocate memory", re.IGNORECASE)
_NO_TERMINAL = re.compile(r"not a (tty|terminal)|Inappropriate ioctl|EOF when reading a line")
_NOT_STARTED = 127
_TAIL_BYTES = 20_000
_LAST_WORDS = 300
# After the job's own limit `run` ends it within 15 s, then merges the recording.
_MORE_S, _GRACE_S, _INTERRUPT_S = 90.0, 5.0, 20.0


class Limits(NamedTuple):
    """A trial ends after so many recorded `steps`, or after `seconds`."""

    steps: int
    seconds: float


def run_trial(entry: TrialEntry, words: Sequence[str], limits: Limits) -> TrialEntry:
    """Run a command and return what was measured, or how it ended.

    Args:
        entry: its number, side and folder, which must not exist.
        words: the command.
        limits: when it is ended.

    Raises:
        LaunchError: there is no such command.
        KeyboardInterrupt: the trial was ended; nothing of the job is left.
    """
    folder, began = Path(entry.folder), time.monotonic()
    log = folder.with_suffix(".log")
    command = [
        sys.executable, "-m", "grpo_doctor", "run", "--no-report", "--no-live", "--no-check",
        "--quiet", "--on-hang", "stop", "--stop-after", str(limits.steps),
        "--at-most", f"{limits.seconds:g}", "-o", str(folder), "--", *words,
    ]  # fmt: skip
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            env={**os.environ, **_ENVIRONMENT}, start_new_session=True,
        )  # fmt: skip
    try:
        code = process.wait(limits.seconds + _MORE_S)
    except subprocess.TimeoutExpired:
        code = None
    finally:
        _end(process, folder)
        shutil.rmtree(folder / OUTPUT, ignore_errors=True)
    if folder.is_dir():
        log = log.replace(folder / LOG)
    wall_s = time.monotonic() - began
    said = _tail(log)
    if code == _NOT_STARTED and not folder.exists():
        raise LaunchError(_last_line(said).removeprefix("grpo-doctor: "))
    return _outcome(entry, code, said, round(wall_s, 3))


def _end(process: subprocess.Popen[bytes], folder: Path) -> None:
    """End what is left of a trial: its supervisor, and then each process of the job. A second
    Ctrl-C waits until that is done."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_INTERRUPT_S)
        process.kill()
        process.wait()
    with contextlib.suppress(OSError, ValueError, KeyError):
        job = int(json.loads((folder / RUN_JSON).read_bytes())["job_pid"])
        deaths = DeathWatch()
        members = Members(job, folder, deaths)
        members.refresh(time.monotonic_ns())
        members.end(_GRACE_S, launcher=True)
        deaths.close()
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _outcome(entry: TrialEntry, code: int | None, said: str, wall_s: float) -> TrialEntry:
    try:
        analysis = analyse(load(Path(entry.folder)))
    except GrpoDoctorError:
        analysis = None
    if analysis is not None and len(analysis.steps.used):
        entry = replace(entry, **_steps_of(analysis))
    state, why = MEASURED, ""
    if code != 0 or len(entry.steps) < LEAST_STEPS:
        is_stuck = analysis is not None and analysis.trace.run.exit.state == "hung"
        ended = _how_it_ended(code, said, len(entry.steps), wall_s)
        state, why = ("stuck", _last_line(said)) if is_stuck else ended
    return replace(entry, wall_s=wall_s, state=state, why=redact_text(why)[:_LAST_WORDS])


def _how_it_ended(code: int | None, said: str, steps: int, wall_s: float) -> tuple[str, str]:
    last = _last_line(said)
    lacks = [line for line in said.splitlines() if _OUT_OF_MEMORY.search(line)]
    if code and lacks:
        return OUT_OF_MEMORY, lacks[-1].strip()
    if code is None:
        return "failed", f"it could not be ended within {_MORE_S:g} s of its limit"
    if code:
        when = f"after {steps} steps" if steps else "before its first step"
        terminal = "it needs a terminal, which a trial does not have: "
        why = terminal * bool(_NO_TERMINAL.search(said)) + last
        return "failed", f"exit code {code} after {wall_s:.0f} s, {when}: {why}"
    return "no steps", f"{steps} complete steps were recorded in {wall_s:.0f} s; at least 4 count"


def _steps_of(analysis: Analysis) -> Mapping[str, list[int] | list[float]]:
    """Return the numbers, seconds and tokens of each complete step."""
    steps = analysis.steps
    rows = np.flatnonzero(steps.closed[:, steps.stepping].all(axis=1))
    tokens = np.nansum(counted(analysis, TOKENS), axis=1)
    return {
        "steps": steps.numbers[rows].tolist(),
        "seconds": steps.seconds[rows][:, steps.stepping].mean(axis=1).round(6).tolist(),
        "tokens": [0.0] * steps.warmup + tokens.tolist() if tokens.sum() > 0 else [],
    }


def _tail(log: Path) -> str:
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _TAIL_BYTES))
        return file.read().decode("utf-8", "replace")


def _last_line(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    own = [line for line in lines if not line.startswith("grpo-doctor:")]
    return (own or lines or ["it printed nothing"])[-1]
