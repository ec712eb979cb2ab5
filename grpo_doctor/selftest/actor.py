"""A job of two processes that does what a GRPO step does, with one thing wrong.

`python -m grpo_doctor.selftest.actor CASE`, under `grpo-doctor run`. It needs nothing but the
recorder, so it runs on any machine. Phases really take the time they take (they sleep, collect
garbage, write files), ranks really wait for each other at a barrier, which is recorded as the
all-reduce that it stands for. Training metrics are made up, as there is no model.
"""

from __future__ import annotations

import gc
import math
import multiprocessing
import os
import random
import sys
import tempfile
import time
from dataclasses import dataclass, field
from multiprocessing.synchronize import Barrier
from pathlib import Path

import grpo_doctor_probes as probes
from grpo_doctor_probes.record import layout, recorder

RANKS = 2
STEPS = 40
_PATIENCE_S = 60.0
_SECONDS = {"rollout": 0.02, "reward": 0.001, "train": 0.02, "optimizer": 0.002}
_CHECKPOINT_BYTES = 4 << 20
_OBJECTS = 150_000


@dataclass
class Rank:
    """One rank of the job; `meetings` counts its all-reduces, `objects` is what it litters."""

    case: str
    number: int
    barrier: Barrier
    folder: Path
    dice: random.Random
    meetings: int = 0
    objects: list[object] = field(default_factory=list)

    def step(self, number: int) -> None:
        """One step, from data to the optimizer."""
        with probes.step(number):
            for phase in ("dataload", "rollout", "reward", "train", "optimizer"):
                with probes.phase(phase):
                    time.sleep(self.seconds(phase))
                    if phase == "rollout" and self.case == "garbage":
                        self.litter()
                    if phase == "train":
                        self.meet()
            if self.case == "checkpoints":
                with probes.phase("checkpoint"):
                    self.save()
            if self.number == 0:
                probes.metrics(number, metrics(self.case, number))

    def seconds(self, phase: str) -> float:
        """Return how long a phase takes, with a spread as generation lengths have it."""
        usual = _SECONDS.get(phase, 0.0005) * self.dice.uniform(0.95, 1.05)
        slow = {
            "slow-reward": phase == "reward",
            "slow-loader": phase == "dataload",
            "straggler": phase == "train" and self.number == 1,
        }
        return usual + 0.05 * slow.get(self.case, False)

    def meet(self) -> None:
        """Wait for the other rank, as an all-reduce does."""
        self.meetings += 1
        began = time.monotonic_ns()
        self.barrier.wait(_PATIENCE_S)
        if recorder.ACTIVE is not None:
            name = recorder.ACTIVE.name_id(("all_reduce", (("group", "world"),)))
            end = time.monotonic_ns()
            recorder.ACTIVE.write(layout.COLLECTIVE, name, began, end, float(self.meetings))

    def litter(self) -> None:
        """Make cycles, and have them collected."""
        for _ in range(_OBJECTS):
            self.objects.append([self.objects])
        gc.collect()
        del self.objects[:-_OBJECTS]  # what the step before left

    def save(self) -> None:
        """Write a file to the disk and wait until it is there."""
        path = self.folder / f"rank{self.number}.bin"
        with path.open("wb") as file:
            file.write(os.urandom(_CHECKPOINT_BYTES))
            file.flush()
            os.fsync(file.fileno())
        time.sleep(0.02)  # a disk that is faster than any is not a cure for saving too often


def metrics(case: str, step: int) -> dict[str, float]:
    """Return what a trainer would log of a step, under TRL's names."""
    dice = random.Random(step)  # noqa: S311 - noise, the same in every run
    share = step / STEPS
    values = {
        "reward": 0.3 + 0.3 * share + dice.gauss(0, 0.02),
        "reward_std": 0.25 + dice.gauss(0, 0.01),
        "frac_reward_zero_std": max(0.0, 0.1 + dice.gauss(0, 0.02)),
        "entropy": 1.2 - 0.2 * share + dice.gauss(0, 0.02),
        "kl": 0.01 + 0.01 * share,
        "clip_ratio/region_mean": 0.01,
        "completions/clipped_ratio": 0.02,
        "completions/mean_length": 200 + dice.gauss(0, 5),
        "grad_norm": 0.5 + dice.gauss(0, 0.02),
    }
    if case == "nan-reward" and step % 2:
        values |= {"reward": math.nan, "reward_std": math.nan}
    if case == "no-difference":
        values["frac_reward_zero_std"] = 0.8 + dice.gauss(0, 0.02)
    if case == "cut-off":
        values["completions/clipped_ratio"] = 0.5 + dice.gauss(0, 0.03)
    if case == "collapse":
        values["entropy"] = 1.2 * math.exp(-8 * share)
    return values


def main(case: str) -> int:
    """Run the job in `RANKS` processes; 0, or the exit code of a rank that failed."""
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(RANKS)
    with tempfile.TemporaryDirectory(prefix="selftest-") as folder:
        ranks = [
            context.Process(target=_run, args=(case, rank, barrier, Path(folder)))
            for rank in range(RANKS)
        ]
        for process in ranks:
            process.start()
        for process in ranks:
            process.join()
    return next((abs(process.exitcode or 0) for process in ranks if process.exitcode), 0)


def _run(case: str, number: int, barrier: Barrier, folder: Path) -> None:
    os.environ |= {"RANK": str(number), "LOCAL_RANK": str(number), "WORLD_SIZE": str(RANKS)}
    if number == 0:
        config = {"num_generations": 8, "per_device_train_batch_size": 8, "use_vllm": True}
        probes.describe("trl", "1.16.0", config)
    dice = random.Random(number)  # noqa: S311 - a spread of lengths
    rank = Rank(case, number, barrier, folder, dice)
    for step in range(1, STEPS + 1):
        rank.step(step)
    probes.stop()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
