"""The pieces that made-up verdicts consist of."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

_TAKEN_UNIX_NS: Final = 1_795_000_000_000_000_000
FIRST_PID: Final = 4_700
REDUCE: Final = "all_reduce, train.py:88"
WAITER_FRAMES: Final = [
    "all_reduce (torch/distributed/distributed_c10d.py:3252)",
    "train_step (train.py:88)",
    "main (train.py:140)",
]


def process(rank: int, state: str, where: str, waiting_for: str = "") -> dict[str, Any]:
    """A rank of the table."""
    return {
        "rank": rank,
        "pid": FIRST_PID + rank,
        "role": "rank",
        "state": state,
        "where": where,
        "waiting_for": waiting_for,
    }


def node(rank: int, *, guilty: bool = False) -> dict[str, Any]:
    """A rank of the graph."""
    return {"id": f"rank:{rank}", "label": f"rank {rank}", "role": "rank", "guilty": guilty}


def wait(source: str, target: str, kind: str, label: str = "") -> dict[str, str]:
    """An edge of the graph."""
    return {"source": source, "target": target, "kind": kind, "label": label}


def stack(ranks: Iterable[int], title: str, frames: list[str]) -> dict[str, Any]:
    """Ranks with one stack."""
    numbers = list(ranks)
    return {
        "ranks": numbers,
        "pids": [FIRST_PID + r for r in numbers],
        "title": title,
        "frames": frames,
    }


def make(world: int, verdict: dict[str, Any], **parts: Any) -> dict[str, Any]:
    """A document with a verdict and parts of its own."""
    document: dict[str, Any] = {
        "schema": 1,
        "job": {
            "host": "node-7",
            "world_size": world,
            "ranks_seen": list(range(world)),
            "ranks_missing": [],
            "framework": "ms-swift",
        },
        "verdict": {
            "culprits": [],
            "victims": [],
            "phase": None,
            "evidence": [],
            "confirm": [],
            "fixes": [],
            **verdict,
        },
        "ranks": [],
        "cost": {"seconds": 2.13, "max_pause_ms": 0.9},
        "taken_unix_ns": _TAKEN_UNIX_NS,
        "graph": {"nodes": [], "edges": [], "cycle": []},
        "stacks": [],
        "problems": [],
    }
    return document | parts
