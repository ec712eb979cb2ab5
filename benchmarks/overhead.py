"""What recording costs a training run: the bundled trainer, or a TRL job under the import hooks.

A round is the same job three times, alone, alone again and recorded, in an order that changes from
round to round. It gives the ratios of alone to alone, which are the machine's noise, and of
recorded to the mean of both alone: of step times by the clock, and by CPU seconds, which other
programs on the machine stretch less (of TRL of rank 0, where the hooks work; of the trainer of all
processes).

    python -m benchmarks.overhead [trainer|trl] [--rounds 7] [--steps 40]
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
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.trainer_jobs import mean_ratio, torchrun
from grpo_doctor_probes.record.rundir import RUN_DIR_VARIABLE
from grpo_doctor_probes.supervisor.launch import plan
from grpo_doctor_trainer.model.tiny import tiny_model, tiny_tokenizer

TRL_JOB = Path(__file__).parents[1] / "tests" / "frameworks" / "user_code" / "trl_stopwatch.py"
WARM_UP_STEPS = 5
# Each side is as often first, second and third, and as often before as after each other.
ORDERS = (
    ("alone", "recorded", "again"), ("again", "recorded", "alone"), ("recorded", "alone", "again"),
    ("again", "alone", "recorded"), ("alone", "again", "recorded"), ("recorded", "again", "alone"),
)  # fmt: skip
Rounds = dict[str, list[float]]


@dataclass(frozen=True)
class Measured:
    """Mean seconds of the steps after the warm-up."""

    step_s: float
    step_cpu_s: float


def of_trainer(folder: Path, steps: int, *, recorded: bool) -> Measured:
    """The bundled trainer with its default settings."""
    program = [
        "grpo_doctor_trainer", "--max_steps", str(steps), "--logging_steps", "1",
        "--save_steps", "1000000", "--output_dir", str(folder / "out"),
    ]  # fmt: skip
    marks = torchrun(program, folder, steps, recorded=recorded)
    ends = [(marks[step].wall_s, marks[step].cpu_s) for step in sorted(marks)]
    return Measured(*map(_mean_of_steps, zip(*ends, strict=True)))


def of_trl(folder: Path, steps: int, *, recorded: bool) -> Measured:
    """A TRL job that was written without this tool, as `grpo-doctor run` starts it or alone."""
    tokenizer, model = tiny_tokenizer(), folder / "model"
    tiny_model(tokenizer).save_pretrained(model)
    tokenizer.save_pretrained(model)
    command = (
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2",
        str(TRL_JOB), str(model), str(folder), "{}",
    )  # fmt: skip
    environment = {name: text for name, text in os.environ.items() if name != RUN_DIR_VARIABLE}
    if recorded:
        environment = dict(plan(command, folder / "run", hooks=True).environment)
    environment |= {
        "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1",
        "TRL_OPTIONS": json.dumps({"max_steps": steps}),
    }  # fmt: skip
    job = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if job.returncode:
        raise SystemExit(f"a job ended with {job.returncode}: {job.stderr[-500:]}")
    lines = (folder / "steps.txt").read_text().splitlines()
    ends = (map(float, line.split()) for line in lines)
    return Measured(*map(_mean_of_steps, zip(*ends, strict=True)))


JOBS: dict[str, Callable[..., Measured]] = {"trainer": of_trainer, "trl": of_trl}


def _mean_of_steps(ends: tuple[float, ...]) -> float:
    after = ends[WARM_UP_STEPS:]
    return (after[-1] - after[0]) / (len(after) - 1)


def measure(job: str, count: int, steps: int) -> Rounds:
    """So many rounds, one after the other."""
    rounds: Rounds = {}
    for number in range(count):
        runs = {}
        for side in ORDERS[number % len(ORDERS)]:
            with tempfile.TemporaryDirectory() as folder:
                runs[side] = JOBS[job](Path(folder), steps, recorded=side == "recorded")
        for name, value in ratios(runs["alone"], runs["again"], runs["recorded"]).items():
            rounds.setdefault(name, []).append(value)
        line = ", ".join(f"{name} {values[-1]:.3f}" for name, values in rounds.items())
        sys.stderr.write(f"round {number + 1} of {count}: {line}\n")
    return rounds


def ratios(alone: Measured, again: Measured, recorded: Measured) -> dict[str, float]:
    """Of step times in one round."""
    values = {}
    for name in ("step_s", "step_cpu_s"):
        plain, second, tried = (getattr(run, name) for run in (alone, again, recorded))
        key = f"{name.removesuffix('_s')}_ratio"
        values[f"off_off_{key}"] = second / plain
        values[f"on_off_{key}"] = tried / math.sqrt(plain * second)
    return values


def table(rounds: Rounds) -> str:
    """Medians, intervals of the means, and every round."""
    lines = []
    for name, values in sorted(rounds.items(), key=lambda item: item[0].partition("_off_")[2]):
        every = " ".join(f"{value:.3f}" for value in values)
        median = statistics.median(values)
        lines.append(f"{name:22} median {median:.3f}   {mean_ratio(values)}   {every}")
    return "\n".join(lines)


def main() -> int:
    """Measures one of the jobs."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.overhead", description=__doc__)
    parser.add_argument("job", nargs="?", choices=JOBS, default="trainer")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=40)
    options = parser.parse_args()
    print(table(measure(options.job, options.rounds, options.steps)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
