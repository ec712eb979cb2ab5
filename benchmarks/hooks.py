"""What the hooks cost a TRL job that was written without this tool: under the prefix against alone.

A round is the same job three times, alone, alone again and hooked, in an order that changes from
round to round: it prints the ratios of mean step times, and the differences of start-up, of alone
to alone (the machine's noise) and of hooked to the mean of both alone. Beside the wall clock, which
other programs on the machine stretch, stand the processor seconds (user and system) of rank 0
within its steps, which they hardly do: the hooks work in the ranks and nowhere else.

    python -m benchmarks.hooks [--pairs 7] [--steps 40] [--json FILE [--continue]]
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.pairs import mean_ratio
from grpo_doctor_probes.record.rundir import RUN_DIR_VARIABLE
from grpo_doctor_probes.supervisor.launch import plan
from grpo_doctor_trainer.model.tiny import tiny_model, tiny_tokenizer

JOB = Path(__file__).parents[1] / "tests" / "frameworks" / "user_code" / "trl_stopwatch.py"
WARM_UP_STEPS = 5
# Each side is as often first, second and third, and as often before as after each other.
ORDERS = (
    ("alone", "hooked", "again"), ("again", "hooked", "alone"), ("hooked", "alone", "again"),
    ("again", "alone", "hooked"), ("alone", "again", "hooked"), ("hooked", "again", "alone"),
)  # fmt: skip
Rounds = dict[str, list[float]]


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
    began = time.time()
    job = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if job.returncode:
        side = "under the hooks" if hooked else "alone"
        raise SystemExit(f"the job {side} ended with {job.returncode}: {job.stderr[-500:]}")
    lines = (folder / "steps.txt").read_text().splitlines()
    clocks, processors = zip(*(map(float, line.split()) for line in lines), strict=True)
    return Measured(clocks[0] - began, _mean_of_steps(clocks), _mean_of_steps(processors))


def _mean_of_steps(ends: tuple[float, ...]) -> float:
    after = ends[WARM_UP_STEPS:]
    return (after[-1] - after[0]) / (len(after) - 1)


def measure(pairs: int, steps: int, file: Path | None, rounds: Rounds) -> None:
    """Adds what each round says until there are so many; each is written to `file` when done."""
    with tempfile.TemporaryDirectory() as parent:
        model = Path(parent, "model")
        tokenizer = tiny_tokenizer()
        tiny_model(tokenizer).save_pretrained(model)
        tokenizer.save_pretrained(model)
        began = time.monotonic()
        first = len(rounds.get("off_off_step_ratio", []))
        for number in range(first, pairs):
            runs = {}
            for side in ORDERS[number % len(ORDERS)]:
                folder = Path(parent, f"{number}-{side}")
                folder.mkdir()
                runs[side] = run_job(model, steps, folder, hooked=side == "hooked")
            for name, value in ratios(runs["alone"], runs["again"], runs["hooked"]).items():
                rounds.setdefault(name, []).append(value)
            if file:
                file.write_text(json.dumps(rounds))
            minutes = (time.monotonic() - began) / 60
            to_go = minutes / (number + 1 - first) * (pairs - number - 1)
            line = ", ".join(f"{name} {rounds[name][-1]:.3f}" for name in rounds if "ratio" in name)
            sys.stderr.write(f"pair {number + 1} of {pairs}, {to_go:.0f} min left: {line}\n")


def ratios(alone: Measured, again: Measured, hooked: Measured) -> dict[str, float]:
    """Of step times, and differences of start-up in seconds, in one round."""
    values = {}
    for name in ("step_s", "step_cpu_s"):
        plain, second, tried = (getattr(run, name) for run in (alone, again, hooked))
        key = f"{name.removesuffix('_s')}_ratio"
        values[f"off_off_{key}"] = second / plain
        values[f"on_off_{key}"] = tried / math.sqrt(plain * second)
    values["off_off_start_s"] = again.start_s - alone.start_s
    values["on_off_start_s"] = hooked.start_s - (alone.start_s + again.start_s) / 2
    return values


def table(rounds: Rounds) -> str:
    """Medians, intervals of the means, and every round."""
    lines = []
    for name, values in sorted(rounds.items(), key=lambda item: item[0].partition("_off_")[2]):
        every = " ".join(f"{value:.3f}" for value in values)
        interval = f"   {mean_ratio(values)}" if name.endswith("ratio") else ""
        lines.append(f"{name:22} median {statistics.median(values):.3f}{interval}   {every}")
    return "\n".join(lines)


def main() -> int:
    """0, or 2 where the file has rounds of another run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hooks", description=__doc__)
    add = parser.add_argument
    add("--pairs", type=int, default=7, help="rounds")
    add("--steps", type=int, default=40)
    add("--json", type=Path, metavar="FILE", help="keep every round there as soon as it is done")
    add("--continue", dest="goes_on", action="store_true", help="after the rounds in that file")
    options = parser.parse_args()
    file: Path | None = options.json
    rounds: Rounds = json.loads(file.read_text()) if file and file.exists() else {}
    if rounds and not options.goes_on:
        sys.stderr.write(f"{file} has rounds already: go on with --continue, or name another\n")
        return 2
    measure(options.pairs, options.steps, file, rounds)
    print(table(rounds))
    return 0


if __name__ == "__main__":
    sys.exit(main())
