"""Starts small gloo jobs for test_discover.py. Imports torch once, then forks a launcher for each
line of standard input, which forks its ranks; run as a script.

A line is `{"ranks": N, "port": P}`; the answer is `{"launcher": pid, "ranks": [pids]}` once every
rank is where it shall stay. Ranks set RANK after the fork.
"""

from __future__ import annotations

import ctypes
import datetime
import json
import os
import subprocess
import sys
import threading
from typing import Any

HOSTILE = b"x) R (\x1b[31m\n7"  # 15 bytes are the limit of the kernel
SET_NAME = 15  # PR_SET_NAME of linux/prctl.h


def main() -> None:
    os.environ["OMP_NUM_THREADS"] = "1"
    import torch
    import torch.distributed as dist
    import torch.utils.data

    torch.set_num_threads(1)
    assert dist.is_available()
    _say("ready")
    for line in sys.stdin:
        if os.fork() == 0:
            os.setsid()
            if os.fork():
                os._exit(0)
            _launch(json.loads(line))
        os.wait()


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _launch(wish: dict[str, Any]) -> None:
    mine, theirs = os.pipe()
    pids = []
    for rank in range(wish["ranks"]):
        pid = os.fork()
        if pid == 0:
            _be_rank(wish, rank, theirs)
        pids.append(pid)
    ready_count = 0
    while ready_count < len(pids):
        ready_count += len(os.read(mine, len(pids)))
    _say(json.dumps({"launcher": os.getpid(), "ranks": pids}))
    threading.Event().wait()


def _be_rank(wish: dict[str, Any], rank: int, ready: int) -> None:
    import torch
    import torch.distributed as dist

    timeout = datetime.timedelta(hours=1)
    store = dist.TCPStore(  # type: ignore[attr-defined]
        "127.0.0.1", wish["port"], wish["ranks"], rank == 0, timeout, wait_for_workers=False
    )
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(wish["ranks"])}
    dist.init_process_group(
        "gloo", store=store, rank=rank, world_size=wish["ranks"], timeout=timeout
    )
    dist.all_reduce(torch.ones(1))
    helpers = _helpers() if rank == 1 else ()
    os.write(ready, b"x")
    threading.Event().wait()
    del helpers


def _helpers() -> tuple[Any, ...]:
    """A child program, a dataloader with a worker, and a name that breaks careless parsers."""
    import torch.utils.data

    items: Any = list(range(10**6))
    loader: Any = torch.utils.data.DataLoader(items, num_workers=1)
    iterator = iter(loader)
    next(iterator)
    child = subprocess.Popen(["sleep", "1000"])
    ctypes.CDLL(None).prctl(SET_NAME, HOSTILE)
    return iterator, child


if __name__ == "__main__":
    main()
