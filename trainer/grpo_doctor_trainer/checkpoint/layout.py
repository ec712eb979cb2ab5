"""What is in the folder of a checkpoint: names, and what it weighs, for the log and the trace."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

from grpo_doctor_probes import counter, instant
from grpo_doctor_trainer.logs.console import LOG

FORMAT = 1
PREFIX = "checkpoint-"
STATE_JSON = "trainer_state.json"
BEST_JSON = "best_checkpoint.json"
OPTIMIZER = "optimizer"
PROGRESS = "resume"
_WEIGHTS = (".safetensors", ".bin")


def rank_file(rank: int) -> str:
    """Names what one rank writes."""
    return f"rank_{rank:05d}.pt"


def step_of(path: Path) -> int | None:
    """Gives the step of a `checkpoint-N`, and none for other names."""
    digits = path.name.removeprefix(PREFIX) if path.name.startswith(PREFIX) else ""
    return int(digits) if digits.isdigit() else None


def checkpoints_in(folder: Path) -> list[Path]:
    """Lists checkpoints, the newest last.

    By time, not by step: an earlier run in the same folder may have come further.
    """
    saved = [path for path in folder.glob(f"{PREFIX}*") if step_of(path) is not None]
    return sorted(saved, key=lambda path: (path.stat().st_mtime_ns, step_of(path) or 0))


def sizes_in(folder: Path) -> dict[str, int]:
    """Gives the bytes of `weights`, `optimizer`, `resume` and `other` in a checkpoint."""
    sizes = Counter({"weights": 0, "optimizer": 0, "resume": 0, "other": 0})
    for path in folder.rglob("*"):
        if path.is_file():
            sizes[_kind(path.relative_to(folder))] += path.stat().st_size
    return dict(sizes)


def report_sizes(folder: Path, weights: int, seconds: float) -> None:
    """Records what was written and says it in one line.

    The trace gets, on rank 0, counters `checkpoint/weights_bytes`, `checkpoint/optimizer_bytes`
    (0: left out), `checkpoint/other_bytes` and `checkpoint/weights`, and an instant that names the
    dtype.

    Args:
        folder: the finished checkpoint.
        weights: how many were handed over to be saved.
        seconds: that it took.
    """
    sizes = sizes_in(folder)
    dtype = _dtype(folder)
    counter("checkpoint/weights_bytes", float(sizes["weights"]))
    counter("checkpoint/optimizer_bytes", float(sizes["optimizer"]))
    counter("checkpoint/other_bytes", float(sizes["resume"] + sizes["other"]))
    counter("checkpoint/weights", float(weights))
    instant(f"checkpoint/saved as {dtype}")
    parts = [f"weights {_mega(sizes['weights'])} ({dtype})"]
    if sizes["resume"]:
        parts.append(f"optimizer {_mega(sizes['optimizer'])}")
        parts.append(f"resume {_mega(sizes['resume'])}")
    parts.append(f"tokenizer and rest {_mega(sizes['other'])}")
    left_out = "" if sizes["resume"] else "; optimizer state left out"
    LOG.info(
        "saved %s: %s MB = %s%s; %.1f s",
        folder, _mega(sum(sizes.values())), " + ".join(parts), left_out, seconds,
    )  # fmt: skip


def _kind(path: Path) -> str:
    if path.parts[0] == OPTIMIZER:
        return "optimizer"
    if path.parts[0] == PROGRESS:
        return "resume"
    return "weights" if path.suffix in _WEIGHTS else "other"


def _dtype(folder: Path) -> str:
    """Names the dtype that most of the bytes on disk have: what was asked for proves nothing."""
    from safetensors import safe_open  # noqa: PLC0415 - comes with transformers

    sizes: Counter[str] = Counter()
    for path in folder.glob("*.safetensors"):
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118 - no dictionary
                part = file.get_slice(name)
                sizes[part.get_dtype()] += math.prod(part.get_shape())
    names = {"F32": "float32", "BF16": "bfloat16", "F16": "float16", "F64": "float64"}
    kinds = [names.get(kind, kind) for kind, _ in sizes.most_common()]
    return " and ".join(kinds) or "no weights"


def _mega(size: int) -> str:
    return f"{size / 1e6:.1f}"
