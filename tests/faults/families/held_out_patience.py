"""Held out: the harmless likeness of many a held-out fault, which ends by itself in every step.

Whoever mends a wrong verdict about one of those faults can go too far; these say so.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import multiprocessing
import subprocess
import sys
import threading
import time
import urllib.request
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from tests.faults.controls import SLOW_RANK, control
from tests.faults.held_out import engines
from tests.ports import free_port

if TYPE_CHECKING:
    from pathlib import Path

    from tests.faults.grpo import Trainer

LONG_S = 6.0
EVERYBODY = (0, 1, 2, 3)


def _once(trainer: Trainer, name: str, make: Any) -> Any:
    """What is made in the first slow step and kept."""
    if not hasattr(trainer, name):
        setattr(trainer, name, make())
    return getattr(trainer, name)


def _late(seconds: float, work: Any) -> None:
    """Does it after a while, in a thread."""
    timer = threading.Timer(seconds, work)
    timer.daemon = True
    timer.start()


@control("event loops with a heartbeat, a tool takes six seconds", "rollout", ranks=EVERYBODY)
def play(trainer: Trainer, _folder: Path) -> None:
    import torch.distributed as dist

    async def beat() -> None:
        while True:
            await asyncio.sleep(0.2)

    async def episode() -> None:
        heart = asyncio.create_task(beat())
        if trainer.rank == SLOW_RANK:
            tool = await asyncio.create_subprocess_exec("sleep", str(LONG_S))
            await tool.wait()
        await asyncio.to_thread(dist.barrier)
        heart.cancel()

    asyncio.run(episode())


def _engine(trainer: Trainer, folder: Path, mode: str, *more: str) -> int:
    def start() -> int:
        command = [sys.executable, "-S", str(engines.__file__), mode, str(folder), *more]
        subprocess.Popen(command, stdin=subprocess.DEVNULL)
        while not (folder / "engine.json").exists():
            time.sleep(0.02)
        return int(json.loads((folder / "engine.json").read_text())["port"])

    port: int = _once(trainer, "engine", start)
    return port


def _post(port: int, path: str) -> None:
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data=b"{}")
    with urllib.request.urlopen(request) as answer:
        answer.read()


@control("an engine paused for six seconds", "rollout")
def generate_after_pause(trainer: Trainer, folder: Path) -> None:
    port = _engine(trainer, folder, "pauses")
    _post(port, "/pause")
    _late(LONG_S, lambda: _post(port, "/resume"))
    _post(port, "/generate")


@control("an engine that waits six seconds for its compile lock", "rollout")
def generate_with_kernels(trainer: Trainer, folder: Path) -> None:
    path = folder / "compile.lock"
    port = _engine(trainer, folder, "compiles", str(path))
    lock = path.open("w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    _late(LONG_S, lock.close)
    _post(port, "/generate")


@control("an engine that joins the group for weights after five seconds", "sync_weights")
def open_transfer_group(_trainer: Trainer, _folder: Path) -> None:
    from torch._C._distributed_c10d import TCPStore

    port = free_port()
    hour = timedelta(hours=1)
    _late(5.0, lambda: TCPStore("127.0.0.1", port, 2, False, hour))
    TCPStore("127.0.0.1", port, 2, True, hour)


def _hold(lock: Any, taken: Any) -> None:
    with lock:
        taken.set()
        time.sleep(LONG_S)


@control("a manager's lock that a worker has for six seconds", "rollout")
def use_managed_cache(trainer: Trainer, _folder: Path) -> None:
    context = multiprocessing.get_context("fork")
    manager = _once(trainer, "manager", context.Manager)
    lock, taken = _once(trainer, "shared", manager.Lock), context.Event()
    owner = context.Process(target=_hold, args=(lock, taken))
    owner.start()
    taken.wait()
    with lock:
        pass
    owner.join()


@control("a thread joined while it waits for a child", "update")
def close_writer(_trainer: Trainer, _folder: Path) -> None:
    lock = threading.Lock()

    def flush() -> None:
        with lock:
            subprocess.run(["sleep", str(LONG_S)], check=True)

    writer = threading.Thread(target=flush, name="writer")
    writer.start()
    writer.join()


@control("a condition notified after six seconds", "compute_logprobs")
def wait_for_reference(_trainer: Trainer, _folder: Path) -> None:
    ready = threading.Condition()

    def load() -> None:
        time.sleep(LONG_S)
        with ready:
            ready.notify()

    with ready:
        threading.Thread(target=load, name="loader", daemon=True).start()
        ready.wait()


@control("a ring whose neighbour comes late", "compute_logprobs", ranks=EVERYBODY)
def pass_keys_on(trainer: Trainer, _folder: Path) -> None:
    import torch
    import torch.distributed as dist

    if trainer.rank == SLOW_RANK:
        _work(LONG_S)
    size = trainer.world_size
    works = dist.batch_isend_irecv(
        [
            dist.P2POp(dist.isend, torch.ones(8), (trainer.rank + 1) % size),
            dist.P2POp(dist.irecv, torch.zeros(8), (trainer.rank - 1) % size),
        ]
    )
    for work in works:
        work.wait()


def _work(seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        sum(range(10_000))


@control("samples gathered while one rank still decodes", "reward", ranks=EVERYBODY)
def gather_samples(trainer: Trainer, _folder: Path) -> None:
    import torch.distributed as dist

    if trainer.rank == SLOW_RANK:
        _work(LONG_S)
    samples: list[Any] | None = [None] * trainer.world_size if trainer.rank == 0 else None
    dist.gather_object({"text": "yes"}, samples, dst=0)


@control("a metrics thread reduces under a lock, the others come late", "update", ranks=EVERYBODY)
def log_under_lock(trainer: Trainer, _folder: Path) -> None:
    import torch
    import torch.distributed as dist

    metrics = _once(trainer, "metrics", dist.new_group)
    lock = threading.Lock()

    def report() -> None:
        with lock:
            dist.all_reduce(torch.ones(1), group=metrics)

    if trainer.rank != SLOW_RANK:
        time.sleep(0.1)
        _work(LONG_S * (trainer.rank == 0))
    thread = threading.Thread(target=report, name="metrics", daemon=True)
    thread.start()
    time.sleep(0.05)
    with lock:
        trainer.weights *= 1
    thread.join()


@control("a barrier made of a counter in the store, one comes late", "update", ranks=EVERYBODY)
def wait_by_counter(trainer: Trainer, _folder: Path) -> None:
    from torch.distributed.distributed_c10d import _get_default_store

    if trainer.rank == SLOW_RANK:
        _work(LONG_S)
    store, key = _get_default_store(), f"arrived {trainer.step}"
    store.add(key, 1)
    while store.add(key, 0) < trainer.world_size:
        time.sleep(0.2)


@control("rows from a slow decompressor", "rollout")
def read_rows(_trainer: Trainer, _folder: Path) -> None:
    code = f"import time\nfor _ in range(3): time.sleep({LONG_S / 3}); print('row', flush=True)"
    unpack = subprocess.Popen([sys.executable, "-S", "-c", code], stdout=subprocess.PIPE)
    assert unpack.stdout is not None
    assert len(unpack.stdout.read().splitlines()) == 3
    unpack.wait()
