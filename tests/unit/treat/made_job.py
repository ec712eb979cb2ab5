"""A job made in code: what a treatment measures, without a process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from msgspec.structs import replace

from grpo_doctor.trace.write import write_trace
from grpo_doctor.treat.trial import Limits
from grpo_doctor_reports.schema.treat import TrialEntry
from tests.build import TraceBuilder

_NO_WORKERS = "--dataloader_num_workers 0"


class Job:
    """A job whose steps wait for their data without loader processes.

    Attributes:
        trials: the words of each.
        ends: by the number of a trial, the state in which it ends instead.
        reward: what a step logs, by its number and whether there are processes.
        cost_s: seconds of the clock for each trial.
        first_start_s: what the first one takes before its steps.
    """

    def __init__(self, wait_s: float = 3.0, after_s: float = 0.05) -> None:
        self.wait_s, self.after_s = wait_s, after_s
        self.framework = "bundled"
        self.trials: list[list[str]] = []
        self.ends: dict[int, str] = {}
        self.reward: Callable[[int, bool], float] = lambda step, _: float(np.sin(step))
        self.now_s, self.cost_s, self.first_start_s = 0.0, 30.0, 0.0
        self.on_trial: Callable[[int], None] = lambda _: None

    def __call__(self, entry: TrialEntry, words: Sequence[str], limits: Limits) -> TrialEntry:
        number = len(self.trials)
        self.trials.append(list(words))
        self.now_s += self.cost_s
        self.on_trial(number)
        if number in self.ends:
            return replace(entry, state=self.ends[number], why="it says so", wall_s=self.cost_s)
        files = [Path(word).read_text() for word in words if Path(word).is_file()]
        has_workers = not any(_NO_WORKERS in text for text in [" ".join(words), *files])
        lengths = self._write(Path(entry.folder), number, limits.steps, has_workers)
        wall_s = self.cost_s
        if number == 0 and self.first_start_s:
            wall_s = self.first_start_s + sum(lengths)
            self.now_s += wall_s - self.cost_s
        return replace(
            entry, state="measured", wall_s=wall_s, steps=list(range(limits.steps)),
            seconds=list(lengths),
        )  # fmt: skip

    def _write(self, folder: Path, number: int, steps: int, has_workers: bool) -> list[float]:
        noise = 1 + 0.01 * np.random.default_rng(number).normal()
        workers = 4 if has_workers else 0
        build = TraceBuilder(
            ranks=2, framework=self.framework,
            framework_version="4.6.0" if self.framework == "ms-swift" else "0.1.0",
            knobs={"dataload.num_workers": workers},
        )  # fmt: skip
        phases = {"dataload": self.after_s if has_workers else self.wait_s}
        phases |= {"rollout": 2.0, "train": 1.0}
        phases = {name: seconds * noise for name, seconds in phases.items()}
        length = sum(phases.values())
        for step in range(steps):
            for rank in range(2):
                build.step(rank, step, step * length, phases)
            build.metrics(step, reward=self.reward(step, has_workers), loss=0.1 * step)
        folder.mkdir(parents=True)
        write_trace(build.build(), folder / "trace.json")
        return [length] * steps
