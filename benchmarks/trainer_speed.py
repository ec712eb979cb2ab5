"""Tokens per second of the bundled trainer's steps next to TRL's GRPOTrainer, on CPU or GPU.

Both train the same random model from the same folder on two gloo ranks without DeepSpeed, with the
same prompts, batch, completion length, reward, KL term and optimizer, one thread per rank, and
generate with transformers. Runs are in pairs and take turns in going first. The first two steps are
left out; a step is all that happens between the ends of two steps. Next to the wall clock it counts
CPU time of all processes, which a busy machine disturbs less.

    python -m benchmarks.trainer_speed [--size tiny|small|long|images] [--pairs 3] [--steps 12]
    python -m benchmarks.trainer_speed --size gpu-short|gpu-long    one rank on a GPU, in bfloat16

A job that fails after its last step has been measured all the same (gloo sometimes aborts while a
process ends); one that fails before leaves its pair out, which is said.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.trainer_folders import REWARD_FILE, SIZES, Size, write_folder
from benchmarks.trainer_jobs import JobFailedError, Mark, mean_ratio, torchrun
from grpo_doctor.trace.read import load

AS_FAST = 1.0  # of TRL, in the median of the pairs
WARM_UP_STEPS = 2
_GROUP, _RATE, _BETA = 8, 1e-4, 0.04
_UNFROZEN = ("--freeze_vit", "false", "--freeze_aligner", "false")  # as TRL, which trains all
_GPU_SETTINGS = {"use_cpu": False, "ddp_backend": None, "bf16": True}


@dataclass(frozen=True)
class Speed:
    """Tokens per second of the wall clock, and of CPU time of all processes.

    `tokens` are those of prompts and completions, as both sides count them. `peak_bytes` are the
    most that PyTorch's allocator had given to tensors, on a GPU.
    """

    wall: float
    cpu: float
    tokens: float
    peak_bytes: int

    def __str__(self) -> str:
        """In a line."""
        peak = f", peak {self.peak_bytes / 2**30:.2f} GiB" if self.peak_bytes else ""
        return f"{self.wall:,.0f} ({self.cpu:,.0f} per CPU second, {self.tokens:,.0f} in all{peak})"


def _speed(first: Mark, last: Mark, tokens: float, peak_bytes: int) -> Speed:
    wall_s, cpu_s = last.wall_s - first.wall_s, last.cpu_s - first.cpu_s
    return Speed(tokens / wall_s, tokens / cpu_s, tokens, peak_bytes)


def trl_speed(folder: Path, size: Size, steps: int) -> Speed:
    """Of TRL's trainer, which prints the tokens so far."""
    settings: dict[str, Any] = {
        "max_steps": steps, "per_device_train_batch_size": size.batch, "num_generations": _GROUP,
        "max_completion_length": size.tokens, "temperature": 1.0, "beta": _BETA,
        "learning_rate": _RATE, "lr_scheduler_type": "constant", "loss_type": "grpo",
        **(_GPU_SETTINGS if size.gpu else {}),
    }  # fmt: skip
    program = ["benchmarks.trl_peer", str(folder), json.dumps(settings)]
    marks = torchrun(program, folder, steps, size.ranks)
    first, last = marks[WARM_UP_STEPS], marks[steps]
    before, after = (int(mark.line.split()[3]) for mark in (first, last))
    return _speed(first, last, after - before, int(last.line.split()[5]))


def our_speed(folder: Path, size: Size, steps: int, flags: list[str]) -> Speed:
    """Of the bundled trainer, recorded as a user would."""
    metrics = folder / "run" / "metrics.jsonl"
    metrics.unlink(missing_ok=True)
    program = [
        "grpo_doctor_trainer",
        "--model", str(folder / "model"), "--dataset", str(folder / "prompts.jsonl"),
        "--reward_funcs", f"{folder / REWARD_FILE}:digits", "--train_type", "full",
        "--per_device_train_batch_size", str(size.batch), "--num_generations", str(_GROUP),
        "--max_completion_length", str(size.tokens), "--temperature", "1.0", "--beta", str(_BETA),
        "--learning_rate", str(_RATE), "--lr_scheduler_type", "constant", "--warmup_ratio", "0",
        "--loss_type", "grpo", "--max_steps", str(steps), "--logging_steps", "1",
        "--save_steps", "0", "--gradient_checkpointing", "false",
        "--torch_dtype", "bfloat16" if size.gpu else "float32",
        "--output_dir", str(folder / "out"), *(_UNFROZEN if size.image else ()), *flags,
    ]  # fmt: skip
    marks = torchrun(program, folder, steps, size.ranks)
    rows = map(json.loads, metrics.read_text(encoding="utf-8").splitlines())
    tokens = {row["step"]: row["metrics"]["num_tokens"] for row in rows}
    peak_bytes = 0
    if size.gpu:
        frame = load(folder / "run").frame()
        peak_bytes = int(frame[frame["name"] == "memory/allocated_peak"]["value"].max())
    trained = tokens[steps] - tokens[WARM_UP_STEPS]
    return _speed(marks[WARM_UP_STEPS], marks[steps], trained, peak_bytes)


def measure(size: Size, pairs: int, steps: int, flags: list[str]) -> list[tuple[Speed, Speed]]:
    """Ours and TRL's, pair by pair; `flags` are for ours."""
    sides: list[Callable[[Path], Speed]] = [
        lambda folder: our_speed(folder, size, steps, flags),
        lambda folder: trl_speed(folder, size, steps),
    ]
    results = []
    with tempfile.TemporaryDirectory() as parent:
        write_folder(Path(parent), size)
        for pair in range(pairs):
            turn = -1 if pair % 2 else 1  # drift shall favor neither
            try:
                ours, trl = [side(Path(parent)) for side in sides[::turn]][::turn]
            except JobFailedError as error:
                print(f"pair {pair + 1}/{pairs} is left out: {error}", file=sys.stderr, flush=True)
                continue
            results.append((ours, trl))
            line = f"pair {pair + 1}/{pairs}, tokens/s: ours {ours}, trl {trl}"
            print(line, file=sys.stderr, flush=True)
    return results


def main() -> int:
    """Prints the ratios of tokens per second; ends with 1 if ours is clearly slower."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--flags", default="", help="more flags for the bundled trainer")
    options = parser.parse_args()
    if find_spec("trl") is None:
        print("TRL is not installed, so there is nothing to compare with: pip install trl")
        return 0
    size = SIZES[options.size]
    pairs = measure(size, options.pairs, options.steps, options.flags.split())
    if not pairs:
        print("no pair of runs reached its last step", file=sys.stderr)
        return 1
    ratios = {
        "wall": [ours.wall / trl.wall for ours, trl in pairs],
        "CPU": [ours.cpu / trl.cpu for ours, trl in pairs],
    }
    for clock, values in ratios.items():
        print(
            f"ours / trl, tokens per {clock} second: {mean_ratio(values)}, median "
            f"{statistics.median(values):.2f}, {min(values):.2f} to {max(values):.2f} "
            f"({len(pairs)} pairs of {options.steps - WARM_UP_STEPS} steps, {options.size})"
        )
    # Another process on the machine takes wall time from one side of a pair, and little CPU time;
    # the time of a GPU is on no CPU.
    return int(statistics.median(ratios["wall" if size.gpu else "CPU"]) < AS_FAST)


if __name__ == "__main__":
    sys.exit(main())
