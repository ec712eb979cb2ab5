"""A job of two forked gloo ranks in GRPO-like steps; at step AT the reward of one stops it.

python watched_job.py FOLDER
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import NoReturn

import torch
import torch.distributed as dist

from grpo_doctor_probes import phase, step, watch_collectives

AT, GUILTY = 60, 1
RANKS = 2


def main(folder: Path) -> int:
    torch.set_num_threads(1)
    pids = []
    for rank in range(RANKS):
        pid = os.fork()
        if pid == 0:
            work(rank, folder)
        pids.append(pid)

    def end_all(_number: int, _frame: FrameType | None) -> None:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)

    signal.signal(signal.SIGTERM, end_all)
    signal.signal(signal.SIGINT, end_all)
    return max(os.wait()[1] for _ in pids) >> 8 or 1


def work(rank: int, folder: Path) -> NoReturn:
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(RANKS)}
    dist.init_process_group(
        "gloo", init_method=f"file://{folder / 'store'}", rank=rank, world_size=RANKS,
        timeout=timedelta(seconds=600),
    )  # fmt: skip
    watch_collectives()
    for number in itertools.count():
        with step(number):
            with phase("rollout"):
                time.sleep(0.02)
            with phase("reward"):
                if (rank, number) == (GUILTY, AT):
                    os.kill(os.getpid(), signal.SIGSTOP)
                dist.all_reduce(torch.ones(4))
            with phase("train"):
                dist.all_reduce(torch.ones(4))
    raise AssertionError("it never ends by itself")


if __name__ == "__main__":
    os._exit(main(Path(sys.argv[1])))  # torch takes 20 s to leave on a busy machine
