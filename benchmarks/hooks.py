"""What the hooks cost a TRL job that was written without this tool: under the prefix against alone.

Runs the same job in pairs, alone-alone and hooked-alone in turn, and prints the ratios of mean step
times and the differences of start-up, pair by pair. The first kind of pair shows the machine's
noise. Beside the wall clock, which other programs on the machine stretch, stand the processor
seconds (user and system) of rank 0 within its steps, which they hardly do: the hooks work in the
ranks and nowhere else.

    python -m benchmarks.hooks [--pairs 7] [--steps 40] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.pairs import mean_ratio, paired
from grpo_doctor_probes.rundir import RUN_DIR_VARIABLE
from grpo_doctor_probes.supervisor.launch import plan
from grpo_doctor_trainer.model.tiny import tiny_model, tiny_tokenizer

JOB = Path(__file__).parents[1] / "tests" / "frameworks" / "user_code" / "trl_stopwatch.py"
WARM_UP_STEPS = 5


@dataclass(frozen=True)
class Measured:
    """Seconds from the launch to the first step's end, and means of the steps after the warm-up:
    by the clock, and of rank 0's processors."""

    start_s: float
    step_s: float
    step_cpu_s: float


def run_job(model: Path, steps: int, folder: Path, *, hooked: bool) -> Measured:
    """One job on two ranks, with the environment that `grpo-doctor run` gives it or without."""
    command = (
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2",
        str(JOB), str(model), str(folder), "{}",
    )  # fmt: skip
    environment = dict(
        plan(command, folder / "run", hooks=True).environment if hooked else os.environ
    )
    if not hooked:
        environment.pop(RUN_DIR_VARIABLE, None)
    environment |= {
        "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1",
        "TRL_OPTIONS": json.dumps({"max_steps": steps}),
    }  # fmt: skip
    begun = time.time()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        side = "under the hooks" if hooked else "alone"
        raise SystemExit(f"the job {side} ended with {done.returncode}: {done.stderr[-500:]}")
    lines = (folder / "steps.txt").read_text().splitlines()
    clocks, processors = zip(*(map(float, line.split()) for line in lines), strict=True)
    return Measured(clocks[0] - begun, _mean_of_steps(clocks), _mean_of_steps(processors))


def _mean_of_steps(ends: tuple[float, ...]) -> float:
    after = ends[WARM_UP_STEPS:]
    return (after[-1] - after[0]) / (len(after) - 1)


def measure(pairs: int, steps: int) -> dict[str, list[float]]:
    """Ratios of step times and differences of start-up in seconds, of both kinds of pairs."""
    said: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as parent:
        model = Path(parent, "model")
        tokenizer = tiny_tokenizer()
        tiny_model(tokenizer).save_pretrained(model)
        tokenizer.save_pretrained(model)
        for pair, kind, tried, plain in paired(
            pairs, Path(parent), lambda folder, on: run_job(model, steps, folder, hooked=on)
        ):
            said.setdefault(f"{kind}_step_ratio", []).append(tried.step_s / plain.step_s)
            ratio = tried.step_cpu_s / plain.step_cpu_s
            said.setdefault(f"{kind}_step_cpu_ratio", []).append(ratio)
            said.setdefault(f"{kind}_start_s", []).append(tried.start_s - plain.start_s)
            sys.stderr.write(f"pair {pair} of {pairs}, {kind}\n")
    return said


def main() -> None:
    """Prints medians and all pairs."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hooks", description=__doc__)
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    said = measure(given.pairs, given.steps)
    if given.json:
        print(json.dumps(said))
        return
    for name, values in said.items():
        every = " ".join(f"{value:.3f}" for value in values)
        interval = f"   {mean_ratio(values)}" if name.endswith("ratio") else ""
        print(f"{name:22} median {statistics.median(values):.3f}{interval}   {every}")


if __name__ == "__main__":
    main()
