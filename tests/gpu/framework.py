"""TRL on a GPU under `grpo-doctor run`, with no edit to it: phases on the device's clock.

Where a framework does not synchronize, the host's clock makes a forward pass look free and the next
`.item()` pay. The truth is the same job with every span synchronized.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.gpu.parts import Outcome, Wish, problem_without
from tests.gpu.training import ROOT, make_model, phase_seconds
from tests.gpu.training import phases_worth_comparing as worth_comparing

NEEDED = ("transformers", "accelerate", "datasets", "trl")
STEPS = 12
PATIENCE_S = 400
CLOSE = 0.05  # as for the stopwatches of tests/frameworks, on the CPU


class FrameworkError(Exception):
    """The job did not end well; the message is the end of what it said."""


def run(wish: Wish, outcome: Outcome) -> None:
    """Three runs: alone, under `run`, and under `run` with every span synchronized."""
    if problem := problem_without(*NEEDED):
        outcome.skips("TRL", problem)
        return
    model = make_model(wish.folder / "model", layers=14)
    try:
        alone = _train(model, wish.folder / "alone", recorded=False)
        recorded = _train(model, wish.folder / "recorded")
        _train(model, wish.folder / "truth", synchronized=True)
    except FrameworkError as error:
        outcome.says("TRL", False, f"the job failed: {str(error)[-900:]}")
        return
    outcome.says(
        "losses", alone == recorded, f"alone {alone[:3]} ..., under run {recorded[:3]} ..."
    )
    truth = phase_seconds(wish.folder / "truth")
    device = phase_seconds(wish.folder / "recorded", on_device=True)
    host = phase_seconds(wish.folder / "recorded")
    for name in sorted(worth_comparing(truth)):
        apart = abs(device.get(name, 0.0) - truth[name]) / truth[name]
        outcome.says(
            f"TRL's {name}",
            apart < CLOSE,
            f"{device.get(name, 0.0):.2f} s on the device's clock, {truth[name]:.2f} s "
            f"synchronized, {100 * apart:.1f}% apart; {host.get(name, 0.0):.2f} s by the host",
        )


def _train(
    model: Path, folder: Path, *, recorded: bool = True, synchronized: bool = False
) -> list[float]:
    """Trains; gives the losses. Raises FrameworkError."""
    job = [sys.executable, "-m", "tests.gpu.trl_job", str(model), str(folder / "out"), str(STEPS)]
    prefix = [sys.executable, "-m", "grpo_doctor", "run", "-o", str(folder / "run"), "--"]
    environment = os.environ | {"SYNCHRONIZED": str(int(synchronized))}
    done = subprocess.run(
        [*(prefix if recorded else ()), *job], cwd=ROOT, env=environment, capture_output=True,
        text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    lines = [line for line in done.stdout.splitlines() if line.startswith("losses ")]
    if done.returncode or not lines:
        raise FrameworkError(done.stdout[-1000:] + done.stderr[-3000:])
    losses: list[float] = json.loads(lines[-1].removeprefix("losses "))
    return losses
