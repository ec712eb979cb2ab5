"""Starts a sick run, and says what an agent is told of it."""

from __future__ import annotations

import contextlib
import json
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from tests.clinic import causes
from tests.clinic.runs import Kind, SickRun, sick_runs
from tests.faults.bench import fork_server
from tests.faults.cases import struck
from tests.faults.jobs import environment
from tests.faults.registry import load
from tests.labelled.bench import PATIENCE_S, burners, schooled, write_files
from tests.labelled.case import Case, flags_of
from tests.recorded import workshop

LAUNCH, RECORDING, TASK = "launch.sh", "recording", "TASK.md"


@dataclass(frozen=True, slots=True)
class Opened:
    """What an agent has: a folder with `TASK.md`, and a launch script or a process.

    Attributes:
        pid: the launcher of a running job that is stuck; 0: the job is not running.
        gpus: of a launch that is not to be started.
    """

    name: str
    kind: Kind
    folder: Path
    pid: int = 0
    gpus: str = ""

    @property
    def launch(self) -> Path:
        return self.folder / LAUNCH

    def recording(self) -> Path:
        """The run, recorded once by `grpo-doctor run`.

        Raises:
            subprocess.CalledProcessError: it could not be recorded.
        """
        folder = self.folder / RECORDING
        if not folder.exists():
            command = [sys.executable, "-m", "grpo_doctor", "run", "-o", str(folder), "--quiet",
                       "--no-report", "--no-watchdog", "--", "bash", LAUNCH]  # fmt: skip
            subprocess.run(
                command, cwd=self.folder, env=environment(), check=True, timeout=PATIENCE_S,
                capture_output=True, text=True,
            )  # fmt: skip
        return folder


@contextlib.contextmanager
def opened(name: str, folder: Path, model: Path | None = None) -> Iterator[Opened]:
    """The run in `folder`; a stuck one is killed at the end.

    Args:
        name: of `sick_runs()`.
        folder: a new one.
        model: where the model that all start from is kept; trained there first if it is not.

    Raises:
        tests.faults.host.Unavailable: the fault cannot be injected on this host.
        tests.faults.events.Silence: it had no effect; ask again.
    """
    run = sick_runs()[name]
    folder.mkdir(parents=True)
    told = Opened(name, run.kind, folder, gpus=run.gpus)
    with contextlib.ExitStack() as undo:
        if run.fault:
            told = undo.enter_context(_stuck(run, told))
        elif run.case is not None:
            _write_launch(run.case, folder, _model(model or folder / "model"))
            undo.enter_context(burners(run.case.load))
        else:
            (folder / LAUNCH).write_text(run.launch + "\n")
        (folder / TASK).write_text(task(told))
        yield told


@contextlib.contextmanager
def _stuck(run: SickRun, told: Opened) -> Iterator[Opened]:
    with fork_server() as server, struck(server, load()[run.fault]) as (job, _):
        yield replace(told, pid=job.launcher)


def _model(folder: Path) -> str:
    with workshop() as shop:
        return schooled(shop, folder)


def _write_launch(case: Case, folder: Path, model: str) -> None:
    write_files(case, folder)
    words = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node",
             str(case.ranks), "-m", "grpo_doctor_trainer", *flags_of(case, model)]  # fmt: skip
    (folder / LAUNCH).write_text(f"exec {shlex.join(words)}\n")


def task(told: Opened) -> str:
    """The question, as an agent gets it."""
    menu = "\n".join(f"- `{key}`: {means}" for key, means in causes.MENU[told.kind].items())
    where = (
        f"It runs on this host; its first process is {told.pid}, its ranks are below it."
        if told.pid
        else f"`{LAUNCH}` starts it, on {told.gpus}. Do not start it."
        if told.gpus
        else f"`bash {LAUNCH}` starts it, in this folder; it ends by itself."
    )
    rank = ', "rank": N' if told.pid else ""
    answer = json.dumps({"run": told.name, "cause": "KEY"})[:-1] + rank + "}"
    return (
        f"# {told.name}: a GRPO run that is {told.kind}\n\n{where}\nUse commands only. "
        f"Find the cause, and answer with one line of JSON:\n\n    {answer}\n\n{menu}\n"
    )
