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
_VLLM_FLAGS = (
    "--use_vllm", "true", "--vllm_gpu_memory_utilization", "0.04", "--vllm_max_model_len", "256",
)  # fmt: skip
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


def trl_speed(folder: Path, size: Size, steps: int, *, vllm: bool) -> Speed:
    """Of TRL's trainer."""
    engine = (_VLLM_SETTINGS, _VLLM_ENVIRONMENT) if vllm else ()
    marks = trl_marks(folder, size, steps, *engine)
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
