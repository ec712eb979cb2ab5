"""Names inside and around a checkpoint."""

from __future__ import annotations

from pathlib import Path

FORMAT = 1
PREFIX = "checkpoint-"
STATE_JSON = "trainer_state.json"
OPTIMIZER = "optimizer"
PROGRESS = "resume"


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
    found = [path for path in folder.glob(f"{PREFIX}*") if step_of(path) is not None]
    return sorted(found, key=lambda path: (path.stat().st_mtime_ns, step_of(path) or 0))
