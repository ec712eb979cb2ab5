"""A rank of a job over two hosts: `hosts_job.py FAULT MARKS`. Rank 3 is the culprit.

Other jobs import `FAULTS`, what it does in its reward from then on.
"""

from __future__ import annotations

import asyncio
import datetime
import os
import queue
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist

CULPRIT = 3
STEP = 25


def stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def sleep() -> None:
    time.sleep(100_000)


def wait_for_judge() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        urllib.request.urlopen(f"http://127.0.0.1:{port}/score")


def read_pipe() -> None:
    reader, _ = os.pipe()
    os.read(reader, 1)


def take_score() -> None:
    queue.Queue[float]().get()


def lock_twice() -> None:
    lock = threading.Lock()
    with lock, lock:
        pass


def run_sandbox() -> None:
    subprocess.run(["sleep", "100000"], check=True)


def wait_for_marker() -> None:
    path = "/never/score.done"
    while not os.path.exists(path):  # noqa: PTH110 - as people write it
        time.sleep(0.5)


def open_fifo() -> None:
    path = Path(tempfile.mkdtemp()) / "fifo"
    os.mkfifo(path)
    path.read_text()


def await_score() -> None:
    async def score() -> None:
        await asyncio.get_running_loop().create_future()

    asyncio.run(score())


def match_slowly() -> None:
    re.match(r"(a+)+b", "a" * 60)


def count_forever() -> None:
    number = 0
    while True:
        number += 1


FAULTS: dict[str, Callable[[], None]] = {
    "stopped": stop,
    "reward": sleep,
    "http": wait_for_judge,
    "pipe": read_pipe,
    "queue": take_score,
    "lock": lock_twice,
    "child": run_sandbox,
    "marker": wait_for_marker,
    "fifo": open_fifo,
    "coroutine": await_score,
    "regex": match_slowly,
    "loop": count_forever,
}


def fork_judge() -> None:
    """A process for rewards, as a pool of workers is: it has the environment of its rank."""
    if os.fork() == 0:
        while True:
            signal.pause()


def compute_rewards(step: int, fault: str) -> None:
    """The phase in which a rank stands still."""
    time.sleep(0.02)
    if step == STEP and dist.get_rank() == CULPRIT:
        FAULTS.get(fault, lambda: None)()


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
