"""What recording costs a training run: the bundled trainer recorded against not recorded.

Runs the same job in pairs, off-off and off-on in turn, and prints the ratio of mean step times,
pair by pair. The off-off pairs show the noise of the machine: recording is within noise when the
two medians differ by less than the off-off pairs do among themselves.

    python -m benchmarks.overhead [--pairs 5] [--steps 30] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.pairs import paired
from grpo_doctor_probes.record.rundir import RUN_DIR_VARIABLE

WARM_UP_STEPS = 5
_STEP = re.compile(r"^step +(\d+)/\d+ ")


def step_seconds(steps: int, folder: Path, *, recorded: bool) -> float:
    """Seconds from the end of the warm-up to the last step's line in the trainer's log."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    environment.pop(RUN_DIR_VARIABLE, None)
    if recorded:
        environment[RUN_DIR_VARIABLE] = str(folder)
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2",
        "-m", "grpo_doctor_trainer", "--max_steps", str(steps), "--logging_steps", "1",
        "--save_steps", "1000000", "--output_dir", str(folder / "out"),
    ]  # fmt: skip
    ends: dict[int, float] = {}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout
        for line in process.stdout:
            if match := _STEP.match(line):
                ends[int(match.group(1))] = time.monotonic()
    if process.returncode or steps not in ends:
        raise SystemExit(f"the trainer ended with {process.returncode} after steps {sorted(ends)}")
    return ends[steps] - ends[WARM_UP_STEPS]


def measure(pairs: int, steps: int) -> dict[str, list[float]]:
    """Ratios of paired runs: `off_off` is the noise, `on_off` the cost and the noise."""
    ratios: dict[str, list[float]] = {"off_off": [], "on_off": []}
    with tempfile.TemporaryDirectory() as parent:
        for pair, kind, tried, plain in paired(
            pairs, Path(parent), lambda folder, on: step_seconds(steps, folder, recorded=on)
        ):
            ratios[kind].append(tried / plain)
            print(f"pair {pair}/{pairs} {kind}: {ratios[kind][-1]:.4f}", file=sys.stderr)
    return ratios


def main() -> None:
    """Prints the medians and the spread."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    ratios = measure(options.pairs, options.steps)
    result = {
        name: {
            "median": statistics.median(values),
            "min": min(values),
            "max": max(values),
            "pairs": len(values),
        }
        for name, values in ratios.items()
    }
    if options.json:
        print(json.dumps(result, indent=1))
        return
    for name, row in result.items():
        print(
            f"{name:8} median {row['median']:.4f}  min {row['min']:.4f}  max {row['max']:.4f}  "
            f"({row['pairs']} pairs of {options.steps - WARM_UP_STEPS} steps)"
        )


if __name__ == "__main__":
    main()
