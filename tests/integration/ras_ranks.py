"""Forked gloo ranks that all stand in `all_reduce`: rank 2 in another group than the others.

    python ras_ranks.py RANKS FOLDER

Says the process numbers. By their stacks alone nobody differs.
"""

from __future__ import annotations

import os
import sys
from datetime import timedelta
from pathlib import Path
from typing import NoReturn

os.environ["OMP_NUM_THREADS"] = "1"

import torch
import torch.distributed as dist

GUILTY, STEPS = 2, 20


def train(rank: int, ranks: int, folder: Path) -> NoReturn:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder / 'store'}", rank=rank, world_size=ranks,
        timeout=timedelta(minutes=20),
    )  # fmt: skip
    groups = [dist.new_group(), dist.new_group()]
    for step in range(STEPS + 1):
        for number, group in enumerate(groups):
            if (rank, step, number) != (GUILTY, STEPS, 0):
                dist.all_reduce(torch.ones(64), group=group)
    raise AssertionError("it never gets here")


def main(ranks: int, folder: Path) -> None:
    pids = []
    for rank in range(ranks):
        pids.append(os.fork())
        if not pids[-1]:
            own = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks}
            os.environ.update({name: str(value) for name, value in own.items()})
            train(rank, ranks, folder)
    sys.stdout.write(" ".join(map(str, pids)) + "\n")
    sys.stdout.flush()
    for _ in pids:
        os.wait()


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
