"""A rank of a job over two hosts: `hosts_job.py FAULT MARKS`. Rank 3 is the culprit."""

from __future__ import annotations

import datetime
import os
import signal
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

CULPRIT = 3
STEP = 25


def fork_judge() -> None:
    """A process for rewards, as a pool of workers is: it has the environment of its rank."""
    if os.fork() == 0:
        while True:
            signal.pause()


def compute_rewards(step: int, fault: str) -> None:
    """The phase in which a rank stands still."""
    time.sleep(0.02)
    if step == STEP and dist.get_rank() == CULPRIT:
        if fault == "stopped":
            os.kill(os.getpid(), signal.SIGSTOP)
        elif fault == "reward":
            time.sleep(100_000)


def update_weights(step: int, fault: str) -> None:
    """Collectives of all ranks, but for the one that leaves one out."""
    values = torch.ones(64)
    if not (fault == "skipped" and step == STEP and dist.get_rank() == CULPRIT):
        dist.all_reduce(values)
    dist.broadcast(values, src=0)


def main(fault: str, marks: Path) -> None:
    """Trains for ever."""
    torch.set_num_threads(1)
    fork_judge()
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=900))
    for step in range(10_000_000):
        if step == STEP:
            (marks / str(dist.get_rank())).touch()
        compute_rewards(step, fault)
        update_weights(step, fault)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
