"""Tokens per second of the bundled trainer's steps beside TRL's GRPOTrainer, on CPU or GPU.

Both train the same random model from the same folder on two gloo ranks without DeepSpeed, with the
same prompts, batch, completion length, reward, KL term and optimizer, one thread per rank, and
roll out with transformers' generate. Runs are in pairs and take turns in going first. The first
two steps are left out; a step is all that happens between the ends of two steps. Beside the wall
clock it counts processor time of all processes, which a busy machine disturbs less.

    python -m benchmarks.trainer_speed [--size tiny|small|long|images] [--pairs 3] [--steps 12]
    python -m benchmarks.trainer_speed --size gpu-short|gpu-long    one rank on a GPU, in bfloat16

A job that fails after its last step has been measured all the same (gloo sometimes aborts while a
process ends); one that fails before leaves its pair out, which is said.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from pathlib import Path

from benchmarks.pairs import mean_ratio
from benchmarks.trainer_folders import SIZES, Size
from benchmarks.trainer_jobs import (
    WARM_UP_STEPS,
    Mark,
    our_marks,
    side_by_side,
    side_by_side_parser,
    trl_marks,
)
from grpo_doctor.trace.read import load

AS_FAST = 1.0  # of TRL, in the median of the pairs


@dataclass(frozen=True)
class Speed:
    """Tokens per second of the wall clock, and of the processors' time of all processes.

    `tokens` are those of prompts and completions, as both sides count them. `peak_bytes` are the
    most that PyTorch's allocator had given to tensors, on a GPU.
    """

    wall: float
    cpu: float
    tokens: float
    peak_bytes: int = 0

    @classmethod
    def between(cls, first: Mark, last: Mark, tokens: float) -> Speed:
        """Of the tokens trained on between two marks."""
        wall_s, cpu_s = last.wall_s - first.wall_s, last.cpu_s - first.cpu_s
        return cls(tokens / wall_s, tokens / cpu_s, tokens)


def trl_speed(folder: Path, size: Size, steps: int) -> Speed:
    """Of TRL's trainer."""
    marks = trl_marks(folder, size, steps)
    first, last = marks[WARM_UP_STEPS], marks[steps]
    before, after = (int(mark.line.split()[3]) for mark in (first, last))
    peak_bytes = int(last.line.split()[5])
    return replace(Speed.between(first, last, after - before), peak_bytes=peak_bytes)


def our_speed(folder: Path, size: Size, steps: int, *flags: str) -> Speed:
    """Of the bundled trainer."""
    marks = our_marks(folder, size, steps, *flags)
    text = (folder / "run" / "metrics.jsonl").read_text(encoding="utf-8")
    rows = {row["step"]: row["metrics"]["num_tokens"] for row in map(json.loads, text.splitlines())}
    tokens = rows[steps] - rows[WARM_UP_STEPS]
    speed = Speed.between(marks[WARM_UP_STEPS], marks[steps], tokens)
    return replace(speed, peak_bytes=_peak_bytes(folder / "run")) if size.gpu else speed


def _peak_bytes(run: Path) -> int:
    frame = load(run).frame()
    return int(frame[frame["name"] == "memory/allocated_peak"]["value"].max())


def measure(
    size: Size, pairs: int, steps: int, flags: Sequence[str] = ()
) -> dict[str, list[Speed]]:
    """Both sides, pair by pair; `flags` are for ours."""
    sides = {
        "ours": lambda folder: our_speed(folder, size, steps, *flags),
        "trl": lambda folder: trl_speed(folder, size, steps),
    }

    def text(speed: Speed) -> str:
        peak = f", peak {speed.peak_bytes / 2**30:.2f} GiB" if size.gpu else ""
        cpu = f"{speed.cpu:,.0f} per CPU second"
        return f"{speed.wall:,.0f} ({cpu}, {speed.tokens:,.0f} in all{peak})"

    return side_by_side(size, pairs, sides, text, unit=", tokens/s")


def main() -> int:
    """Prints the ratios of tokens per second; ends with 1 if ours is clearly slower."""
    parser = side_by_side_parser(__doc__, steps=12)
    options = parser.parse_args()
    if find_spec("trl") is None:
        print("TRL is not installed, so there is nothing to compare with: pip install trl")
        return 0
    size, flags = SIZES[options.size], options.flags.split()
    measured = measure(size, options.pairs, options.steps, flags)
    name, peer = measured
    pairs = list(zip(measured[name], measured[peer], strict=True))
    if not pairs:
        print("no pair of runs reached its last step", file=sys.stderr)
        return 1
    ratios = {
        "wall": [mine.wall / theirs.wall for mine, theirs in pairs],
        "cpu": [mine.cpu / theirs.cpu for mine, theirs in pairs],
    }
    judged = "wall" if size.gpu else "cpu"
    if options.json:
        speeds = {side: [asdict(speed) for speed in runs] for side, runs in measured.items()}
        print(json.dumps({"tokens_per_second": speeds, "ratios": ratios}, indent=1))
    else:
        for clock, values in ratios.items():
            print(
                f"{name} / {peer}, tokens per {clock} second: {mean_ratio(values)}, median "
                f"{statistics.median(values):.2f}, {min(values):.2f} to {max(values):.2f} "
                f"({len(pairs)} pairs of {options.steps - WARM_UP_STEPS} steps, {options.size})"
            )
    # Another process on the machine takes wall time from one side of a pair, and little CPU time;
    # the time of a GPU is on no processor.
    return int(statistics.median(ratios[judged]) < AS_FAST)


if __name__ == "__main__":
    sys.exit(main())
