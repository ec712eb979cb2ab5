"""Tokens per second of the bundled trainer's steps beside TRL's GRPOTrainer, on CPU or GPU.

Both train the same random model from the same folder on two gloo ranks without DeepSpeed, with the
same prompts, batch, completion length, reward, KL term and optimizer, one thread per rank, and
roll out with transformers' generate. Runs are in pairs and take turns in going first. The first
two steps are left out; a step is all that happens between the ends of two steps. Beside the wall
clock it counts processor time of all processes, which a busy machine disturbs less.

    python -m benchmarks.trainer_speed [--size tiny|small|long|images] [--pairs 3] [--steps 12]
    python -m benchmarks.trainer_speed --size gpu-short|gpu-long    one rank on a GPU, in bfloat16
    python -m benchmarks.trainer_speed --vllm    both with vLLM in the ranks

A job that fails after its last step has been measured all the same (gloo sometimes aborts while a
process ends); one that fails before leaves its pair out, which is said.

With --vllm TRL's weight sync has one call replaced, see `trl_peer`: its own, load_weights, fails on
vLLM's CPU build. Neither side compiles its engine, which would take minutes.
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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

from benchmarks.pairs import in_turn, mean_ratio
from benchmarks.trainer_folders import REWARD_FILE, SIZES, Size, write_folder
from grpo_doctor.trace.load import load
from grpo_doctor_probes.rundir import RUN_DIR_VARIABLE

WARM_UP_STEPS = 2
AS_FAST = 1.0  # of TRL, in the median of the pairs
Result = TypeVar("Result")
_STEP = re.compile(r"^step +(\d+)[ /]")

_GROUP, _RATE, _BETA = 8, 1e-4, 0.04
_UNFROZEN = ("--freeze_vit", "false", "--freeze_aligner", "false")  # as TRL, which trains all
_VLLM_FLAGS = (
    "--use_vllm", "true", "--vllm_gpu_memory_utilization", "0.04", "--vllm_max_model_len", "256",
)  # fmt: skip
_GPU_SETTINGS = {"use_cpu": False, "ddp_backend": None, "bf16": True}
_VLLM_SETTINGS = {
    "use_vllm": True, "vllm_mode": "colocate", "vllm_gpu_memory_utilization": 0.04,
    "vllm_max_model_length": 256,
}  # fmt: skip
# What TRL leaves to who runs it: an engine in the process, 1 GiB of KV cache, its threads not bound
# to the same core, nothing compiled. The trainer sets the like itself.
_VLLM_ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind", "TORCHDYNAMO_DISABLE": "1", "VLLM_USE_AOT_COMPILE": "0",
}  # fmt: skip


class JobFailedError(Exception):
    """A job ended before its last step."""


@dataclass(frozen=True)
class Mark:
    """Where a job stood when it said that a step is over."""

    wall_s: float
    cpu_s: float
    line: str


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
    more: Mapping[str, str] | None = None,
    ranks: int = 2,
) -> dict[int, Mark]:
    """The ends of the steps of a job, by step.

    `program` is a module with its arguments, `more` is for the environment.

    Raises:
        JobFailedError: a step is missing.
    """
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone",
        f"--nproc_per_node={ranks}", "-m", *program,
    ]  # fmt: skip
    environment = {**os.environ, "OMP_NUM_THREADS": "1", RUN_DIR_VARIABLE: str(folder / "run")}
    environment |= more or {}
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
    settings: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
) -> dict[int, Mark]:
    """TRL's trainer, which prints the tokens so far; `settings` are added to its own."""
    all_settings: dict[str, Any] = {
        "max_steps": steps, "per_device_train_batch_size": size.batch, "num_generations": _GROUP,
        "max_completion_length": size.tokens, "temperature": 1.0, "beta": _BETA,
        "learning_rate": _RATE, "lr_scheduler_type": "constant", "loss_type": "grpo",
        **(_GPU_SETTINGS if size.gpu else {}), **(settings or {}),
    }  # fmt: skip
    program = ["benchmarks.trl_peer", str(folder), json.dumps(all_settings)]
    return torchrun(program, folder, steps, environment, size.ranks)


def trl_speed(folder: Path, size: Size, steps: int, *, vllm: bool) -> Speed:
    """Of TRL's trainer."""
    engine = (_VLLM_SETTINGS, _VLLM_ENVIRONMENT) if vllm else ()
    marks = trl_marks(folder, size, steps, *engine)
    first, last = marks[WARM_UP_STEPS], marks[steps]
    before, after = (int(mark.line.split()[3]) for mark in (first, last))
    peak_bytes = int(last.line.split()[5])
    return replace(Speed.between(first, last, after - before), peak_bytes=peak_bytes)


def our_marks(
    folder: Path,
    size: Size,
    steps: int,
    *flags: str,
    environment: Mapping[str, str] | None = None,
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
    return torchrun(program, folder, steps, environment, size.ranks)


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
    size: Size, pairs: int, steps: int, *, vllm: bool, flags: Sequence[str] = ()
) -> dict[str, list[Speed]]:
    """Both sides, pair by pair; `flags` are for ours."""
    flags = (*flags, *(_VLLM_FLAGS if vllm else ()))
    sides = {
        "ours": lambda folder: our_speed(folder, size, steps, *flags),
        "trl": lambda folder: trl_speed(folder, size, steps, vllm=vllm),
    }

    def text(speed: Speed) -> str:
        peak = f", peak {speed.peak_bytes / 2**30:.2f} GiB" if size.gpu else ""
        cpu = f"{speed.cpu:,.0f} per CPU second"
        return f"{speed.wall:,.0f} ({cpu}, {speed.tokens:,.0f} in all{peak})"

    return side_by_side(size, pairs, sides, text, unit=", tokens/s")


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


def main() -> int:
    """Prints the ratios of tokens per second; ends with 1 if ours is clearly slower."""
    parser = side_by_side_parser(__doc__, steps=12)
    parser.add_argument("--vllm", action="store_true")
    options = parser.parse_args()
    if find_spec("trl") is None:
        print("TRL is not installed, so there is nothing to compare with: pip install trl")
        return 0
    size, flags = SIZES[options.size], options.flags.split()
    measured = measure(size, options.pairs, options.steps, vllm=options.vllm, flags=flags)
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
        if options.vllm:
            print(
                "both with vLLM in the ranks; in TRL's weight sync load_weights, which fails on "
                "vLLM's CPU build, is replaced by reload_weights"
            )
    # Another process on the machine takes wall time from one side of a pair, and little CPU time;
    # the time of a GPU is on no processor.
    return int(not options.vllm and statistics.median(ratios[judged]) < AS_FAST)


if __name__ == "__main__":
    sys.exit(main())
