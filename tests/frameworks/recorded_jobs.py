"""What the tests of frameworks' phases share: where environments are, and what a run recorded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from grpo_doctor.analysis import Analysis, analyse
from grpo_doctor.phases import PHASES
from grpo_doctor.trace.model import Kind, Trace
from grpo_doctor.trace.read import load

ENVIRONMENTS = Path(os.environ.get("FRAMEWORK_ENVIRONMENTS", "/tmp/framework-environments"))


def recording(run: Path, *flags: str) -> tuple[str, ...]:
    """What stands before a command that is recorded into `run`."""
    return (sys.executable, "-m", "grpo_doctor", "run", "-o", str(run), *flags, "--")


def phase_seconds(analysis: Analysis) -> dict[str, float]:
    """Seconds of each phase on rank 0, over all steps."""
    return {phase: float(analysis.seconds[:, 0, code].sum()) for code, phase in enumerate(PHASES)}


def stopwatch(folder: Path) -> dict[str, float]:
    """What the job itself measured of its parts, in seconds."""
    measured: dict[str, float] = json.loads((folder / "stopwatch.json").read_text())
    return measured


@dataclass(frozen=True)
class RayJob:
    """A job of several roles that has ended; its recording is in `folder/run`."""

    code: int
    folder: Path

    @cached_property
    def log(self) -> str:
        """All that it printed."""
        return (self.folder / "job.log").read_text(errors="replace")

    @cached_property
    def trace(self) -> Trace:
        return load(self.folder / "run")

    @cached_property
    def analysis(self) -> Analysis:
        return analyse(self.trace)

    def driver_seconds(self, step: int, name: str) -> float:
        """How long a span of the process that carries the steps took in a step."""
        spans = self.trace.spans
        driver = next(p.index for p in self.trace.processes if p.role == "driver")
        mine = spans.select(spans.process == driver)
        window = np.flatnonzero((mine.kind == Kind.STEP) & (mine.value == step))[0]
        within = (mine.start_ns >= mine.start_ns[window]) & (mine.end_ns <= mine.end_ns[window])
        is_named = mine.name == self.trace.names.index(name)
        rows = within & is_named & (mine.kind == Kind.SPAN)
        return float((mine.end_ns - mine.start_ns)[rows].sum()) / 1e9

    @property
    def rewards(self) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
        """When each call of the reward began and ended, by the reward itself."""
        return np.loadtxt(self.folder / "rewards.txt", dtype=np.int64)


def run_logged(words: Sequence[str], variables: Mapping[str, str], folder: Path) -> int:
    """Runs a command whose output goes to `folder/job.log`; its exit code."""
    with (folder / "job.log").open("w") as log:
        return subprocess.run(
            ["nice", "-n", "19", *words], cwd=folder, env=variables, stdout=log,
            stderr=subprocess.STDOUT, check=False,
        ).returncode  # fmt: skip
