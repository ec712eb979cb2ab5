"""The start of case 1's job, in small: `python -m tests.case_studies.startup FOLDER WAY...`.

Each way is a job of eight gloo ranks in a session and folder of its own, without any preparation.
The ranks meet, gather the weights layer by layer, and prepare their images; on the way one of them
stays behind. One process imports torch and forks them all, as `torch.multiprocessing` does.
"""

from __future__ import annotations

import os
import sys
import time
from datetime import timedelta
from pathlib import Path

from tests.case_studies.case_1 import RANKS, STANDSTILLS, Standstill
from tests.faults.events import tell
from tests.ports import free_port

LAYERS = 6
STUCK_LAYER = 2
SHARD = "model-00017-of-00037.safetensors"
_WIDTH = 64


def main() -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    assert dist.is_available()
    folder = Path(sys.argv[1])
    launchers = [
        _launch(standstill, folder / standstill.name)
        for standstill in STANDSTILLS
        if standstill.name in sys.argv[2:]
    ]
    for launcher in launchers:
        os.waitpid(launcher, 0)


def _launch(standstill: Standstill, folder: Path) -> int:
    """Forks a launcher, which forks the ranks and waits for them."""
    folder.mkdir()
    os.mkfifo(folder / SHARD)
    port = free_port()
    launcher = os.fork()
    if launcher:
        return launcher
    os.setsid()
    log = os.open(folder / "job.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    ranks = {}
    for rank in range(RANKS):
        if standstill.name == "rendezvous" and rank == standstill.culprit:
            continue
        ranks[rank] = os.fork()
        if not ranks[rank]:
            _become_rank(standstill, rank, folder, port)
    tell(folder, "launched", -1, ranks=ranks)
    for _ in ranks:
        os.wait()
    os._exit(0)


def _become_rank(standstill: Standstill, rank: int, folder: Path, port: int) -> None:
    os.environ |= {
        "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(RANKS),
        "LOCAL_WORLD_SIZE": str(RANKS), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
    }  # fmt: skip
    try:
        start_training(standstill, rank, folder)
    finally:
        os._exit(1)


def start_training(standstill: Standstill, rank: int, folder: Path) -> None:
    """What every rank does before its first step."""
    import torch.distributed as dist

    tell(folder, "started", rank)
    dist.init_process_group("gloo", timeout=timedelta(minutes=30))
    guilty = standstill.name if rank == standstill.culprit else ""
    load_weights(folder, late=guilty == "gather")
    prepare_images(folder, rank, endless=guilty == "images")
    dist.barrier()
    tell(folder, "first step", rank)


def load_weights(folder: Path, *, late: bool) -> None:
    """Gathers layer after layer, as ZeRO-3 does where weights are loaded or adapters are made."""
    import torch
    import torch.distributed as dist

    for layer in range(LAYERS):
        if late and layer == STUCK_LAYER:
            read_shard(folder / SHARD)
        part = torch.full((_WIDTH,), float(layer))
        weights = [torch.empty(_WIDTH) for _ in range(dist.get_world_size())]
        dist.all_gather(weights, part)


def read_shard(path: Path) -> bytes:
    """A file whose storage does not answer; a FIFO that nobody writes stands in for that."""
    with path.open("rb") as shard:
        return shard.read()


def prepare_images(folder: Path, rank: int, *, endless: bool) -> None:
    """Decodes and scales the pictures; one rank has got a data set that has no end."""
    from PIL import Image

    tell(folder, "images", rank)
    path = folder / f"screen-{rank}.png"
    Image.effect_noise((800, 600), 40).save(path)
    deadline = time.monotonic() + 1
    while endless or time.monotonic() < deadline:
        with Image.open(path) as screen:
            screen.convert("RGB").resize((448, 448), Image.Resampling.BICUBIC)


if __name__ == "__main__":
    main()
