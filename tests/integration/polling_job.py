"""Ranks that all ask, sleep and ask again: `polling_job.py CASE FOLDER`, under torchrun.

From step `DUE` on `marker` waits for a file that never comes and `buffer` for a queue that nobody
fills; `healthy` polls for each of its steps, and gets what it polls for; `steps` has 50 steps a
second, in which it mostly sleeps.
"""

from __future__ import annotations

import datetime
import os
import queue
import sys
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist

CASE, FOLDER = sys.argv[1], Path(sys.argv[2])
DUE = 8
ROLLOUT_S = 2.5  # longer than the time between two samples, shorter than between the first and last


def wait_for_marker(path: str) -> None:
    while not os.path.exists(path):  # noqa: PTH110 - as people write it
        time.sleep(0.5)


def take_batch(batches: queue.Queue[int]) -> int:
    while True:
        try:
            return batches.get(timeout=0.5)
        except queue.Empty:
            continue


def generate(batches: queue.Queue[int]) -> None:
    for step in range(1, 1_000_000):
        if step == DUE and CASE == "buffer":
            return
        time.sleep(ROLLOUT_S if CASE == "healthy" else 0.1)
        batches.put(step)


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=1800))
    batches: queue.Queue[int] = queue.Queue()
    threading.Thread(target=generate, args=(batches,), daemon=True).start()
    for step in range(1, 1_000_000):
        if step == DUE:
            (FOLDER / str(dist.get_rank())).touch()
            if CASE == "marker":
                wait_for_marker("/never/weights.done")
        if CASE == "steps":
            time.sleep(0.02)
        else:
            take_batch(batches)
        dist.all_reduce(torch.ones(1000))


if __name__ == "__main__":
    main()
