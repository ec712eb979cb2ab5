"""A user's own loop over gloo ranks, without phases: plain.py ITERATIONS [RANK ITERATION].

The rank raises in the iteration.
"""

from __future__ import annotations

import sys
import time

import torch
import torch.distributed as dist


def main() -> None:
    iterations, failing, at = (*map(int, sys.argv[1:]), -1, -1)[:3]
    dist.init_process_group("gloo")
    for iteration in range(1, iterations + 1):
        time.sleep(0.2)
        if (dist.get_rank(), iteration) == (failing, at):
            raise ValueError(f"no reward for iteration {iteration}")
        dist.all_reduce(torch.ones(1000))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
