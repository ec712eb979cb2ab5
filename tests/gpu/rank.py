"""A rank of a small job: `python -m tests.gpu.rank FAULT FOLDER BACKEND`, started by `faults`.

With nccl all ranks share one card. NCCL refuses two ranks on the same device of the same host; a
host identity for each makes them hosts of one GPU, that talk over sockets.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

FAULT_STEP = 30
FAULT_RANKS = {
    "healthy": -1,
    "host-stalled": 2,
    "collective-skipped": 1,
    "order-swapped": 3,
    "stopped": 2,
    "killed": 1,
    "paused": 1,
}
GOES_ON = "go-on"  # a file in the folder that ends a pause
DONE_STEPS = 20  # after a pause
STEP_S = 0.05
TIMEOUT = timedelta(minutes=10)


def main() -> None:
    """Steps until the fault, or until somebody ends it."""
    fault, folder, backend = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
    rank = int(os.environ["RANK"])
    job = Job(rank, folder, backend)
    hurt = FAULT_RANKS[fault] == rank
    last = FAULT_STEP + DONE_STEPS if fault == "paused" else sys.maxsize
    for number in range(last):
        job.step(number, fault if hurt and number == FAULT_STEP else "")
    (folder / f"done-{rank}").touch()


class Job:
    """One rank with two groups over all ranks, as of a policy's gradients and of its weights."""

    def __init__(self, rank: int, folder: Path, backend: str) -> None:
        if backend == "nccl":
            os.environ["NCCL_HOSTID"] = f"grpo-doctor-{rank}"
            os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
            for name in ("NCCL_IB_DISABLE", "NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE"):
                os.environ[name] = "1"
        import torch
        import torch.distributed as dist

        self.rank, self.folder = rank, folder
        self.dist: Any = dist
        device = "cpu"
        if backend == "nccl":
            torch.cuda.set_device(0)
            device = "cuda:0"
        dist.init_process_group(backend, timeout=TIMEOUT)
        self.gradients = dist.new_group(backend=backend, group_desc="gradients")
        self.weights = dist.new_group(backend=backend, group_desc="weights")
        self.x = torch.ones(256, 256, device=device)

    def step(self, number: int, fault: str) -> None:
        """A little arithmetic and two collectives."""
        y = (self.x @ self.x).clamp_(-1, 1)
        if fault == "host-stalled":
            reward()
        elif fault == "stopped":
            os.kill(os.getpid(), signal.SIGSTOP)
        elif fault == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        elif fault == "paused":
            pause(self.folder / GOES_ON)
        order = [self.gradients, self.weights]
        if fault == "order-swapped":
            order.reverse()
        for group in order[1:] if fault == "collective-skipped" else order:
            self.dist.all_reduce(y, group=group)
        y.sum().item()
        (self.folder / f"step-{self.rank}").write_text(str(number))
        time.sleep(STEP_S)


def reward() -> None:
    """A reward function that never comes back."""
    time.sleep(3600)


def pause(until: Path) -> None:
    """A reward function that waits for a file."""
    while not until.exists():
        time.sleep(0.05)


if __name__ == "__main__":
    main()
