"""Healthy jobs of a kind that nobody had in mind when the causes were written."""

from __future__ import annotations

import asyncio
import multiprocessing
import queue
import random
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from tests.faults import odd_server
from tests.faults.controls import LONG_S, control

if TYPE_CHECKING:
    from tests.faults.grpo import Trainer

ALL = (0, 1, 2, 3)
_ADDRESSES: dict[str, str] = {}
_HELPERS: list[subprocess.Popen[bytes]] = []


def _address(mode: str, folder: Path) -> str:
    """Of a server that this rank has as a child."""
    if mode not in _ADDRESSES:
        _HELPERS.append(odd_server.spawn(mode, str(folder)))
        _ADDRESSES[mode] = f"http://127.0.0.1:{odd_server.facts(_HELPERS[-1])['port']}/score"
    return _ADDRESSES[mode]


def _post(address: str) -> bytes:
    with urllib.request.urlopen(address, data=b"{}") as answer:
        body: bytes = answer.read()
    return body


@control("judge with a long tail", "reward", world_size=8)
def ask_slow_judge(_trainer: Trainer, folder: Path) -> None:
    address = _address("long-tail", folder)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: _post(address), range(32)))


@control("judge that asks to come back in two seconds", "reward")
def ask_limited_judge(_trainer: Trainer, folder: Path) -> None:
    address = _address("limits-briefly", folder)
    while True:
        try:
            _post(address)
        except urllib.error.HTTPError as limited:
            time.sleep(float(limited.headers["Retry-After"]))
        else:
            return


@control("sandboxes that come and go", "reward", ranks=ALL)
def run_solutions(_trainer: Trainer, _folder: Path) -> None:
    until = time.monotonic() + LONG_S
    while time.monotonic() < until:
        subprocess.run(["sleep", str(random.uniform(0.2, 1.5))], check=True)


@control("a proof in a child that ends", "reward", ranks=(2,))
def prove_in_child(_trainer: Trainer, _folder: Path) -> None:
    code = f"import time\nwhile time.process_time() < {LONG_S / 2}: pass"
    subprocess.run([sys.executable, "-S", "-c", code], check=True)


@control("a data set that trickles in", "rollout", ranks=(0,))
def stream_rows(_trainer: Trainer, folder: Path) -> None:
    with urllib.request.urlopen(_address("streams", folder), data=b"{}") as rows:
        for _ in rows:
            pass


@control("ranks idle while tokens stream in", "rollout", ranks=(0,), world_size=8)
def collect_rollouts(_trainer: Trainer, folder: Path) -> None:
    """A thread reads the engine, the rank waits in a queue, the others for the rank."""
    address = _address("streams", folder)
    tokens: queue.Queue[bytes] = queue.Queue()
    with ThreadPoolExecutor(1, "rollout") as pool:
        pool.submit(lambda: tokens.put(_post(address)))
        tokens.get()


@control("checkpoint uploaded by a thread", "update", ranks=(0,))
def upload_checkpoint(trainer: Trainer, _folder: Path) -> None:
    """The ranks train on; one thread waits for a bucket that takes 100 kB a second."""
    if _HELPERS:
        return
    ours, theirs = socket.socketpair()
    code = "import sys, time\nwhile sys.stdin.buffer.read1(20000): time.sleep(0.2)"
    _HELPERS.append(subprocess.Popen([sys.executable, "-S", "-c", code], stdin=theirs.fileno()))
    theirs.close()
    weights = trainer.weights.numpy().tobytes() * 1000
    threading.Thread(target=ours.sendall, args=(weights,), name="upload", daemon=True).start()


@control("one rank prepares the data, the others want its lock", "rollout", ranks=ALL)
def prepare_under_lock(trainer: Trainer, folder: Path) -> None:
    from filelock import FileLock

    ready = folder / f"prepared-{trainer.step}"
    with FileLock(str(folder / "dataset.lock")):
        until = time.thread_time() + LONG_S / 2
        while not ready.exists() and time.thread_time() < until:
            sum(range(10_000))
        ready.touch()


@control("a replay buffer that fills slowly", "rollout", ranks=(0,))
def poll_buffer(trainer: Trainer, folder: Path) -> None:
    """A child writes samples; the rank looks every fifth of a second whether there are enough."""
    buffer = folder / f"buffer-{trainer.step}"
    code = "import time\nfor _ in range(20):\n time.sleep(0.4); print('sample', flush=True)"
    with buffer.open("wb") as samples:
        child = subprocess.Popen([sys.executable, "-S", "-c", code], stdout=samples)
    while buffer.stat().st_size < 20 * len("sample\n"):
        time.sleep(0.2)
    child.wait()


@control("judge that takes four seconds", "reward", world_size=2, settle_s=8.0)
def ask_thorough_judge(_trainer: Trainer, folder: Path) -> None:
    _post(_address("takes-four-seconds", folder))


@control("weights that an engine takes in four seconds", "sync_weights", ranks=(0,))
def push_weights(_trainer: Trainer, folder: Path) -> None:
    _post(_address("takes-four-seconds", folder).replace("score", "update_weights"))


@control("a batch of answers asked for every three seconds", "reward", ranks=(2,))
def poll_batch(_trainer: Trainer, folder: Path) -> None:
    address = _address("answers", folder)
    for _ in range(3):
        _post(address)
        time.sleep(3.0)


@control("rewards that take each rank another time", "reward", ranks=tuple(range(8)), world_size=8)
def score_unevenly(_trainer: Trainer, _folder: Path) -> None:
    time.sleep(random.choice((0.1, 0.2, 0.5, 3.0)))


@control("sandboxes under asyncio", "reward", ranks=(1, 3))
def run_solutions_together(_trainer: Trainer, _folder: Path) -> None:
    async def run(seconds: float) -> None:
        child = await asyncio.create_subprocess_exec("sleep", str(seconds))
        await child.wait()

    async def run_all() -> None:
        await asyncio.gather(*(run(random.uniform(0.5, 4.0)) for _ in range(6)))

    asyncio.run(run_all())


@control("a pool that starts its workers anew", "reward", ranks=(0,))
def grade_in_new_workers(_trainer: Trainer, _folder: Path) -> None:
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        list(pool.map(time.sleep, [1.0, 2.0, 2.5]))
