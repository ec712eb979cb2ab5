"""Gloo ranks of which one leaves out a collective. Needs torch alone: other versions run it.

    python job.py FOLDER RANKS GUILTY

Says its torch and the ranks' process numbers. On SIGUSR2 a rank writes its recorder into FOLDER, as
JSON and as pickle. A second thread of it waits for that.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any, NoReturn

os.environ["OMP_NUM_THREADS"] = "1"

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d

AT = 8
recorder: Any = _distributed_c10d  # its functions are not in torch's stubs


def gather_scores(ranks: int) -> None:
    dist.all_gather([torch.empty(8) for _ in range(ranks)], torch.ones(8))


def update() -> None:
    dist.all_reduce(torch.ones(64))


def send_weights() -> None:
    dist.broadcast(torch.ones(16), src=0)


def train(rank: int, ranks: int, guilty: int, folder: Path) -> NoReturn:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder / 'store'}",
        rank=rank,
        world_size=ranks,
        timeout=timedelta(minutes=20),
    )
    for step in count():
        if (rank, step) != (guilty, AT):
            gather_scores(ranks)
        update()
        send_weights()
    raise AssertionError


def write_dumps(rank: int, folder: Path) -> NoReturn:
    while True:
        signal.sigwait({signal.SIGUSR2})
        (folder / f"trace_rank_{rank}.json").write_bytes(recorder._dump_fr_trace_json(True, False))
        (folder / f"trace_rank_{rank}").write_bytes(recorder._dump_fr_trace(True, True, False))


def main(folder: Path, ranks: int, guilty: int) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
    pids = []
    for rank in range(ranks):
        pids.append(os.fork())
        if not pids[-1]:
            own = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks}
            os.environ.update({name: str(value) for name, value in own.items()})
            threading.Thread(target=write_dumps, args=(rank, folder), daemon=True).start()
            train(rank, ranks, guilty, folder)
    sys.stdout.write(f"{torch.__version__} {' '.join(map(str, pids))}\n")
    sys.stdout.flush()
    for _ in pids:
        os.wait()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
