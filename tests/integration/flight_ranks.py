"""Forked gloo ranks, unprepared, for `test_flight`: each stuck in its own way, then let go.

Run as `python -m tests.integration.flight_ranks ACTIVITIES STEPS`, with one activity per rank,
separated by commas. Says the ranks' process numbers, waits for a line, lets them go, says what they
computed.
"""

from __future__ import annotations

import ctypes
import hashlib
import mmap
import os
import sys
import tempfile
from datetime import timedelta

os.environ["OMP_NUM_THREADS"] = "1"

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FileStore

Gate = tuple[int, mmap.mmap]  # a pipe that opens it, and a byte that tells that it is open


def asleep(gate: Gate) -> None:
    os.read(gate[0], 1)


def holding_the_gil(gate: Gate) -> None:
    ctypes.PyDLL(None).read(gate[0], ctypes.create_string_buffer(1), 1)


def busy(gate: Gate) -> None:
    while not gate[1][0]:
        pass


def working(gate: Gate) -> None:
    del gate


ACTIVITIES = {f.__name__: f for f in (asleep, holding_the_gil, busy, working)}


def steps(rank: int, count: int, start: torch.Tensor) -> torch.Tensor:
    """Collectives whose result depends on every one before, in every bit."""
    for step in range(count):
        part = torch.sin(start * (rank + 1) + step)
        dist.all_reduce(part)
        start = start + part / dist.get_world_size()
    return start


def run(rank: int, world: int, store: str, activity: str, count: int, gate: Gate) -> bytes:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        store=FileStore(store, world),
        rank=rank,
        world_size=world,
        timeout=timedelta(seconds=120),
    )
    value = steps(rank, count, torch.linspace(0, 1, 257, dtype=torch.float64))
    ACTIVITIES[activity](gate)
    value = steps(rank, 5, value)
    dist.barrier()
    dist.destroy_process_group()
    return value.numpy().tobytes()


def main(activities: list[str], count: int) -> None:
    latch, results = mmap.mmap(-1, 1), os.pipe()
    gates = [os.pipe() for _ in activities]
    with tempfile.TemporaryDirectory() as folder:
        pids = []
        for rank, activity in enumerate(activities):
            pids.append(os.fork())
            if not pids[-1]:
                gate = (gates[rank][0], latch)
                value = run(rank, len(activities), f"{folder}/store", activity, count, gate)
                os.write(results[1], hashlib.sha256(value).digest())
                os._exit(0)
        sys.stdout.write(" ".join(map(str, pids)) + "\n")
        sys.stdout.flush()
        sys.stdin.readline()
        latch[0] = 1
        for _, end in gates:
            os.write(end, b"1")
        codes = [os.waitpid(pid, 0)[1] for pid in pids]
    os.close(results[1])
    sys.stdout.write(" ".join(map(str, codes)) + f" {os.read(results[0], 4096).hex()}\n")


if __name__ == "__main__":
    main(sys.argv[1].split(","), int(sys.argv[2]))
