"""Jobs of the bundled trainer and of TRL on one folder: the ends of their steps, in pairs."""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from benchmarks.pairs import in_turn
from benchmarks.trainer_folders import REWARD_FILE, SIZES, Size, write_folder
from grpo_doctor_probes.record.rundir import RUN_DIR_VARIABLE

WARM_UP_STEPS = 2
Result = TypeVar("Result")
_STEP = re.compile(r"^step +(\d+)[ /]")
_GROUP, _RATE, _BETA = 8, 1e-4, 0.04
_UNFROZEN = ("--freeze_vit", "false", "--freeze_aligner", "false")  # as TRL, which trains all
_GPU_SETTINGS = {"use_cpu": False, "ddp_backend": None, "bf16": True}


class JobFailedError(Exception):
    """A job ended before its last step."""


@dataclass(frozen=True)
class Mark:
    """Where a job stood when it said that a step is over."""

    wall_s: float
    cpu_s: float
    line: str


def cpu_seconds(pid: int) -> float:
    """Processor time of a process and of all that it started, as far as they still run."""
    parents, ticks = {}, {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text(encoding="utf-8").rpartition(")")[2].split()
        except OSError:
            continue  # it has just ended
        parents[int(entry.parent.name)] = int(fields[1])
        ticks[int(entry.parent.name)] = int(fields[11]) + int(fields[12])
    family = {pid}
    while more := {child for child, parent in parents.items() if parent in family} - family:
        family |= more
    return sum(ticks.get(member, 0) for member in family) / os.sysconf("SC_CLK_TCK")


def torchrun(
    program: list[str],
    folder: Path,
    steps: int,
    ranks: int = 2,
) -> dict[int, Mark]:
    """The ends of the steps of a job, by step.

    `program` is a module with its arguments.

    Raises:
        JobFailedError: a step is missing.
    """
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone",
        f"--nproc_per_node={ranks}", "-m", *program,
    ]  # fmt: skip
    environment = {**os.environ, "OMP_NUM_THREADS": "1", RUN_DIR_VARIABLE: str(folder / "run")}
    marks = {}
    with (
        (folder / "errors.txt").open("w", encoding="utf-8") as errors,
        subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True
        ) as process,
    ):
        assert process.stdout
        for line in process.stdout:
            if step := _STEP.match(line):
                mark = Mark(time.monotonic(), cpu_seconds(process.pid), line)
                marks[int(step[1])] = mark
    if steps not in marks or WARM_UP_STEPS not in marks:
        tail = (folder / "errors.txt").read_text(encoding="utf-8")[-3000:]
        raise JobFailedError(f"{program[0]} ended with {process.returncode}\n{tail}")
    if process.returncode:
        note = (
            f"{program[0]} ended with {process.returncode} after its last step, which was measured"
        )
        print(note, file=sys.stderr, flush=True)
    return marks


def trl_marks(
    folder: Path,
    size: Size,
    steps: int,
) -> dict[int, Mark]:
    """TRL's trainer, which prints the tokens so far."""
    all_settings: dict[str, Any] = {
        "max_steps": steps, "per_device_train_batch_size": size.batch, "num_generations": _GROUP,
        "max_completion_length": size.tokens, "temperature": 1.0, "beta": _BETA,
        "learning_rate": _RATE, "lr_scheduler_type": "constant", "loss_type": "grpo",
        **(_GPU_SETTINGS if size.gpu else {}),
    }  # fmt: skip
    program = ["benchmarks.trl_peer", str(folder), json.dumps(all_settings)]
    return torchrun(program, folder, steps, size.ranks)


def our_marks(
    folder: Path,
    size: Size,
    steps: int,
    *flags: str,
) -> dict[int, Mark]:
    """The bundled trainer, recorded as a user would."""
    (folder / "run" / "metrics.jsonl").unlink(missing_ok=True)
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
    return torchrun(program, folder, steps, size.ranks)


def side_by_side(
    size: Size,
    pairs: int,
    sides: Mapping[str, Callable[[Path], Result]],
    text: Callable[[Result], str],
    unit: str = "",
) -> dict[str, list[Result]]:
    """What each side gives, pair by pair; a pair with a job that failed is left out, and named."""
    results: dict[str, list[Result]] = {name: [] for name in sides}
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent)
        write_folder(folder, size)
        for pair in range(pairs):
            try:
                by_side = {name: sides[name](folder) for name in in_turn(pair, sides)}
            except JobFailedError as error:
                print(f"pair {pair + 1}/{pairs} is left out: {error}", file=sys.stderr, flush=True)
                continue
            for name, result in by_side.items():
                results[name].append(result)
            line = ", ".join(f"{name} {text(by_side[name])}" for name in sides)
            print(f"pair {pair + 1}/{pairs}{unit}: {line}", file=sys.stderr, flush=True)
    return results


def side_by_side_parser(documentation: str, steps: int) -> argparse.ArgumentParser:
    """The options of a comparison; `steps` is how many there are by default."""
    parser = argparse.ArgumentParser(description=documentation.partition("\n")[0])
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=steps)
    parser.add_argument("--flags", default="", help="more flags for the bundled trainer")
    parser.add_argument("--json", action="store_true")
    return parser
