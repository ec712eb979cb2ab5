"""Whether the demo learns: the bundled trainer with its default settings, one run per seed.

Prints the mean reward of the first and of the last steps. Ends with 1 unless every seed gets over
80% of the largest reward.

    python -m benchmarks.learning [--seeds 1 2 3] [FLAG ...]
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from benchmarks.trainer_jobs import torchrun

LARGEST_REWARD = 2.0  # accuracy and arithmetic, each at most 1
REQUIRED_SHARE = 0.8
_STEPS = 80
_ENDS = 5  # steps that are averaged at each end of a run


def train(seed: int, folder: Path, flags: list[str]) -> tuple[float, float]:
    """The mean reward of the first and of the last steps of a run with one seed."""
    program = [
        "grpo_doctor_trainer", "--seed", str(seed), "--logging_steps", "1", "--save_steps", "0",
        "--max_steps", str(_STEPS), "--output_dir", str(folder / "out"), *flags,
    ]  # fmt: skip
    torchrun(program, folder, _STEPS)
    lines = (folder / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    rewards = [json.loads(line)["metrics"]["reward"] for line in lines]
    return sum(rewards[:_ENDS]) / _ENDS, sum(rewards[-_ENDS:]) / _ENDS


def main() -> int:
    """Runs the seeds in turn."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    options, flags = parser.parse_known_args()  # the rest goes to the trainer
    shares = []
    for seed in options.seeds:
        with tempfile.TemporaryDirectory() as folder:
            first, last = train(seed, Path(folder), flags)
        shares.append(last / LARGEST_REWARD)
        print(
            f"seed {seed}: reward {first:.3f} -> {last:.3f}, {shares[-1]:.0%} of the largest",
            flush=True,
        )
    return int(min(shares) <= REQUIRED_SHARE)


if __name__ == "__main__":
    sys.exit(main())
