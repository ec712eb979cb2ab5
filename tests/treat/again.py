"""Runs what a treatment kept once more: new pairs, another seed, no code of `treat`."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
from collections.abc import Sequence
from itertools import chain
from math import exp, log, sqrt
from pathlib import Path

from tests.frameworks.advice.jobs import step_s
from tests.frameworks.recorded_jobs import recording
from tests.treat.jobs import Job

STEPS = "60"
T = {5: 2.776, 12: 2.201}  # Student's t by the number of pairs, 95%


def confirmed(job: Job, folder: Path, seed: int, pairs: int) -> str:
    """Return the change of the step time in percent with its 95% interval."""
    card = json.loads((folder / "treated" / "treat.json").read_text())
    kept = card["result"]
    ratios = []
    for pair in range(pairs):
        place = folder / "again" / str(pair)
        sides = {"before": job.words, "after": kept}
        order = list(sides)[:: -1 if pair % 2 else 1]
        took = {side: _step_s(job, sides[side], place / side, seed) for side in order}
        ratios.append(log(took["after"] / took["before"]))
    return interval(ratios)


def interval(ratios: Sequence[float]) -> str:
    """Return the mean of logarithms of after over before in percent, and its interval.

    Example:
        >>> interval([-0.7, -0.7, -0.7, -0.6, -0.8])
        '-50% (-55% to -46%)'
    """
    half = T[len(ratios)] * statistics.stdev(ratios) / sqrt(len(ratios))
    mean = statistics.fmean(ratios)
    low, mid, high = (f"{100 * (exp(mean + end) - 1):+.0f}%" for end in (-half, 0, half))
    return f"{mid} ({low} to {high})"


def _step_s(job: Job, words: Sequence[str], folder: Path, seed: int) -> float:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    own = {"--seed": str(seed), "--max_steps": STEPS, "--output_dir": str(folder / "out")}
    changed = [*_without(words, *own), *chain.from_iterable(own.items())]
    with (folder / "job.log").open("w") as log_file:
        subprocess.run(
            [*recording(folder / "run", "--no-report"), *changed], cwd=folder, check=True,
            env={**os.environ, **job.environment}, stdout=log_file, stderr=subprocess.STDOUT,
        )  # fmt: skip
    shutil.rmtree(folder / "out", ignore_errors=True)
    return step_s(folder / "run")


def _without(words: Sequence[str], *names: str) -> list[str]:
    pairs = zip(["", *words], words, strict=False)
    return [word for before, word in pairs if word not in names and before not in names]
