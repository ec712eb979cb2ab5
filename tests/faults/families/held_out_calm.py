"""Held out: jobs that look stuck for a while and are not."""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import importlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from tests.faults.controls import QUICK_STEPS, SLOW_RANK, control

if TYPE_CHECKING:
    from pathlib import Path

    from tests.faults.grpo import Trainer

LONG_S = 7.0
EVERYBODY = (0, 1, 2, 3)
MEGABYTE = 1 << 20


@control("a flag file that comes after six seconds", "rollout")
def wait_for_flag(trainer: Trainer, folder: Path) -> None:
    flag = folder / f"flag{trainer.step}"
    writer = subprocess.Popen(["sh", "-c", f"sleep 6; touch {flag}"])
    while not flag.exists():
        time.sleep(0.5)
    writer.wait()


@control("a package imported from slow storage", "compute_logprobs")
def import_plugins(trainer: Trainer, folder: Path) -> None:
    package = f"plugins{trainer.step}"
    (folder / package).mkdir()
    sys.path.insert(0, str(folder))
    for part in range(35):
        (folder / package / f"part{part}.py").write_text("import time\ntime.sleep(0.2)\n")
        importlib.invalidate_caches()
        importlib.import_module(f"{package}.part{part}")
    sys.path.remove(str(folder))


@control("a cache locked by a child that fills it", "rollout")
def wait_for_cache(_trainer: Trainer, folder: Path) -> None:
    path = folder / "cache.lock"
    filler = os.fork()
    if filler == 0:
        with path.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            (folder / "filling").touch()
            until = time.monotonic() + LONG_S
            while time.monotonic() < until:
                (folder / "cache").write_bytes(os.urandom(MEGABYTE))
        os._exit(0)
    while not (folder / "filling").exists():
        time.sleep(0.01)
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
    os.waitpid(filler, 0)
    (folder / "filling").unlink()


@control("a verifier that thinks in silence for five seconds", "reward", settle_s=18.0)
def verify_elsewhere(_trainer: Trainer, _folder: Path) -> None:
    subprocess.run(["sh", "-c", "sleep 5; echo yes"], capture_output=True, check=True)


@control("thousands of old files deleted", "update", ranks=(0,))
def rotate_checkpoints(_trainer: Trainer, folder: Path) -> None:
    until = time.monotonic() + LONG_S
    while time.monotonic() < until:
        old = folder / "old"
        old.mkdir()
        for part in range(2000):
            (old / f"{part}").touch()
        for part in range(2000):
            (old / f"{part}").unlink()
        old.rmdir()


@control("weights hashed before they are published", "sync_weights", ranks=(0,))
def hash_weights(_trainer: Trainer, _folder: Path) -> None:
    weights = bytes(64 * MEGABYTE)
    until = time.monotonic() + LONG_S
    while time.monotonic() < until:
        hashlib.sha256(weights)


@control("a pipeline whose stages take two seconds each", "compute_logprobs", ranks=EVERYBODY)
def run_stages(trainer: Trainer, _folder: Path) -> None:
    import torch
    import torch.distributed as dist

    activations = torch.zeros(8)
    if trainer.rank > 0:
        dist.recv(activations, src=trainer.rank - 1)
    until = time.monotonic() + 2.0
    while time.monotonic() < until:
        activations = torch.tanh(activations + 1)
    if trainer.rank + 1 < trainer.world_size:
        dist.send(activations, dst=trainer.rank + 1)


@control("a server that refuses until it is up", "rollout")
def connect_when_up(_trainer: Trainer, _folder: Path) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        starts = threading.Timer(5.0, server.listen)
        starts.start()
        while True:
            with socket.socket() as client:
                if client.connect_ex(server.getsockname()) == 0:
                    return
            time.sleep(0.5)


@control("the others ask a reduction whether it is done", "update", ranks=EVERYBODY)
def overlap(trainer: Trainer, _folder: Path) -> None:
    import torch
    import torch.distributed as dist

    until = time.monotonic() + LONG_S * (trainer.rank == SLOW_RANK)
    tokens = torch.ones(32, len(trainer.weights))
    while time.monotonic() < until:
        tokens = torch.tanh(tokens @ trainer.weights)
    work: Any = dist.all_reduce(torch.ones(1), async_op=True)
    while not work.is_completed():
        time.sleep(0.002)


@control("agents whose tools take half a second each", "rollout")
def play(_trainer: Trainer, _folder: Path) -> None:
    async def episode() -> None:
        for _ in range(12):
            tool = await asyncio.create_subprocess_exec("sleep", "0.5")
            await tool.wait()

    async def episodes() -> None:
        await asyncio.gather(*(episode() for _ in range(4)))

    asyncio.run(episodes())


@control("a profiler's signal a hundred times a second", "update", ranks=EVERYBODY)
def be_profiled(trainer: Trainer, _folder: Path) -> None:
    """Nothing is slow here but that system calls are interrupted."""
    if trainer.step == QUICK_STEPS:
        signal.signal(signal.SIGPROF, lambda *_: None)
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.setitimer(signal.ITIMER_PROF, 0.01, 0.01)
