"""Jobs on torchrun that say when a step is over: by the clock, and by CPU time."""

from __future__ import annotations

import contextlib
import math
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil  # type: ignore[import-untyped]

from grpo_doctor_probes.record.rundir import RUN_DIR_VARIABLE

_STEP = re.compile(r"^step +(\d+)[ /]")
# Student's t at 97.5%, by the number of pairs less one.
_T_975 = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14)


class JobFailedError(Exception):
    """A job ended before its last step."""


@dataclass(frozen=True)
class Mark:
    """Where a job stood when it said that a step is over."""

    wall_s: float
    cpu_s: float
    line: str


def torchrun(
    program: list[str], folder: Path, steps: int, ranks: int = 2, *, recorded: bool = True
) -> dict[int, Mark]:
    """The ends of the steps of a job, by step; `folder/run` has its recording.

    `program` is a module with its arguments.

    Raises:
        JobFailedError: a step is missing.
    """
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone",
        f"--nproc_per_node={ranks}", "-m", *program,
    ]  # fmt: skip
    environment = {name: text for name, text in os.environ.items() if name != RUN_DIR_VARIABLE}
    environment |= {"OMP_NUM_THREADS": "1"}
    if recorded:
        environment[RUN_DIR_VARIABLE] = str(folder / "run")
    marks = {}
    with (
        (folder / "errors.txt").open("w", encoding="utf-8") as errors,
        subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True
        ) as process,
    ):
        assert process.stdout
        for line in process.stdout:
            if step := _STEP.match(line):
                marks[int(step[1])] = Mark(time.monotonic(), cpu_seconds(process.pid), line)
    if not marks.keys() >= set(range(1, steps + 1)):
        tail = (folder / "errors.txt").read_text(encoding="utf-8")[-3000:]
        raise JobFailedError(f"{program[0]} ended with {process.returncode}\n{tail}")
    if process.returncode:
        note = f"{program[0]} ended with {process.returncode} after its last step: it was measured"
        print(note, file=sys.stderr, flush=True)
    return marks


def cpu_seconds(pid: int) -> float:
    """CPU time of a process and of all that it started, as far as they still run."""
    seconds, process = 0.0, psutil.Process(pid)
    for member in (process, *process.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):  # it has just ended
            times = member.cpu_times()
            seconds += times.user + times.system
    return seconds


def mean_ratio(ratios: Sequence[float]) -> str:
    """The geometric mean of the pairs' ratios, with its 95% interval."""
    logs = [math.log(ratio) for ratio in ratios]
    mean = statistics.fmean(logs)
    if not 1 < len(logs) <= len(_T_975) + 1:
        return f"mean {math.exp(mean):.2f}"
    half = _T_975[len(logs) - 2] * statistics.stdev(logs) / math.sqrt(len(logs))
    low, high = math.exp(mean - half), math.exp(mean + half)
    return f"mean {math.exp(mean):.2f} (95%: {low:.2f} to {high:.2f})"
