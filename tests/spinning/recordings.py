"""Recordings as torch's NCCL recorder writes them at a timeout, made of the devices' queues.

Without TORCH_NCCL_ENABLE_TIMING nothing is ever "started"; version 2.9 is torch 2.6's and later.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.spinning.stand_ins import COLLECTIVE, QUEUE_DEPTH, Queue, World

NAMES = ("default_pg", "data_parallel", "tensor_parallel", "weight_sync")
MOST_ENTRIES = 2000


def read_world(path: Path) -> World:
    """A copy of the devices as they are now."""
    return World.from_buffer_copy(path.read_bytes())


def write(world: World, ranks: Sequence[int], size: int, prefix: Path) -> list[Path]:
    """A file for each of `ranks`."""
    paths = []
    for rank in ranks:
        path = Path(f"{prefix}{rank}")
        path.write_bytes(pickle.dumps(recording(world.queues[rank], size), protocol=2))
        paths.append(path)
    return paths


def recording(queue: Queue, size: int) -> dict[str, Any]:
    """What one rank has enqueued, and how far its device is."""
    oldest = max(0, queue.enqueued - QUEUE_DEPTH + 1)
    entries: list[dict[str, Any]] = []
    completed = [0] * len(NAMES)
    for number in range(oldest, queue.enqueued):
        operation = queue.operations[number % QUEUE_DEPTH]
        if operation.kind != COLLECTIVE:
            continue
        done = number < queue.finished
        if done:
            completed[operation.group] = operation.sequence
        entries.append(_entry(len(entries), operation, done))
    return {
        "version": "2.9",
        "entries": entries[-MOST_ENTRIES:],
        "pg_config": {
            str(group): {"name": str(group), "desc": name, "ranks": str(list(range(size)))}
            for group, name in enumerate(NAMES)
        },
        "pg_status": {
            str(group): {
                "last_enqueued_collective": int(queue.called[group]) or -1,
                "last_started_collective": -1,
                "last_completed_collective": completed[group] or -1,
            }
            for group in range(len(NAMES))
        },
    }


def _entry(number: int, operation: Any, done: bool) -> dict[str, Any]:
    sizes, types = [[4]], ["Float"]
    return {
        "record_id": number,
        "pg_id": operation.group,
        "process_group": (str(operation.group), NAMES[operation.group]),
        "collective_seq_id": operation.sequence,
        "p2p_seq_id": 0,
        "op_id": operation.sequence,
        "profiling_name": "nccl:all_reduce",
        "time_created_ns": operation.created_ns,
        "input_sizes": sizes,
        "input_dtypes": types,
        "output_sizes": sizes,
        "output_dtypes": types,
        "state": "completed" if done else "scheduled",
        "time_discovered_started_ns": None,
        "time_discovered_completed_ns": operation.finished_ns if done else None,
        "retired": done,
        "timeout_ms": 600_000,
        "is_p2p": False,
        "frames": [],
    }
