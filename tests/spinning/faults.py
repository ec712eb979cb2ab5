"""What strikes a rank, or all: functions as users have them, which never come back or take long."""

from __future__ import annotations

import hashlib
import itertools
import os
import queue
import subprocess
import sys
import threading
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Scene:
    """The rank that is struck, and the job's folder."""

    trainer: Any
    folder: Path


def ask_server_for_ever(scene: Scene) -> None:
    """A job that is polled, which never becomes ready."""
    while not (scene.folder / "never.done").exists():
        time.sleep(0.05)


def compute_for_ever(scene: Scene) -> None:
    """A search that has no end, in Python."""
    for number in itertools.count():
        hashlib.sha256(str(number).encode()).hexdigest()


def multiply_for_ever(scene: Scene) -> None:
    """The same in a library, under one line."""
    import torch

    state = torch.rand(700, 700)
    while True:
        state = torch.tanh(state @ state)


def match_for_ever(scene: Scene) -> None:
    """A pattern that backtracks: one call of C, with the GIL held."""
    import re

    re.match(r"(a+)+$", "a" * 64 + "b")


def score_with_judge(scene: Scene) -> None:
    """A reward server that accepts and never answers."""
    address = f"http://127.0.0.1:{(scene.folder / 'judge').read_text()}/score"
    urllib.request.urlopen(address, data=b"{}").read()


def take_lock(scene: Scene) -> None:
    """A lock that its holder never gives back."""
    lock = threading.Lock()
    lock.acquire()
    with lock:
        pass


def read_fifo(scene: Scene) -> None:
    """A file that nobody writes."""
    os.mkfifo(scene.folder / "prompts")
    (scene.folder / "prompts").read_text()


def run_sandbox(scene: Scene) -> None:
    """A program that is waited for and never ends."""
    subprocess.run([sys.executable, "-S", "-c", "import time; time.sleep(1e6)"], check=False)


def next_batch(scene: Scene) -> None:
    """A queue whose producer has ended."""
    batches: queue.Queue[int] = queue.Queue()
    batches.get()


def hold_gil(scene: Scene) -> None:
    """A C call that sleeps with the GIL."""
    import ctypes

    ctypes.PyDLL(None).sleep(1_000_000)


def spin_with_gil(scene: Scene) -> None:
    """Waits for the device with the GIL held, after a collective that the others never reach."""
    scene.trainer.device.launch_hung()
    scene.trainer.device.holding.cuStreamSynchronize()


def retry_in_handler(scene: Scene) -> None:
    """Retries what can't work, ever longer."""
    try:
        (scene.folder / "missing.json").read_text()
    except FileNotFoundError:
        for attempt in itertools.count():
            time.sleep(min(2.0**attempt, 30.0))


def solve_in_c(scene: Scene) -> None:
    """A loop of the user's own extension."""
    import ctypes

    solve = scene.trainer.device.user.solve
    solve.argtypes = (ctypes.c_double,)
    solve(1.0)


def hang_kernel(scene: Scene) -> None:
    """A kernel of this rank's GPU never ends; its host waits for it like the others."""
    scene.trainer.device.launch_hung()


def wait_in_loop(scene: Scene) -> None:
    """A thread that has died with the answer."""
    answer = threading.Event()
    while not answer.wait(0.5):
        pass


def be_ended(scene: Scene) -> None:
    """Ends at once, as by a fault in C."""
    os.kill(os.getpid(), 9)


def pause(scene: Scene) -> None:
    """The bench stops it here."""
    time.sleep(1e6) if (scene.folder / "never").exists() else None


def skip_barrier(scene: Scene) -> None:
    """Leaves out the barrier that the others are in, and waits for its next collective."""
    import torch.distributed as dist

    dist.all_reduce(scene.trainer.grads, group=scene.trainer.data_parallel)
    scene.trainer.device.value().item()


def long_kernel(scene: Scene) -> None:
    """Healthy: twenty seconds of one kernel."""
    scene.trainer.device.launch(20.0)


def long_rollout(scene: Scene) -> None:
    """Healthy: a rollout of one rank takes long; token after token from the device."""
    tokens = scene.trainer.device.value()
    until = time.monotonic() + 30.0
    while time.monotonic() < until:
        scene.trainer.device.launch(0.02)
        tokens.tolist()


def host_work(scene: Scene) -> None:
    """Healthy: seconds of Python on every rank."""
    until = time.monotonic() + 3.0
    words = 0
    while time.monotonic() < until:
        words += sum(len(str(number)) for number in range(2000))


def save_checkpoint(scene: Scene) -> None:
    """Healthy: rank 0 writes for half a minute while the others are in the barrier."""
    block = os.urandom(1 << 20)
    until = time.monotonic() + 30.0
    with (scene.folder / "checkpoint.pt").open("wb") as file:
        while time.monotonic() < until:
            file.seek(0)
            for _ in range(16):
                file.write(block)
            os.fsync(file.fileno())


def compile_kernels(scene: Scene) -> None:
    """Healthy: one rank compiles, in child processes, as Triton and inductor do."""
    source = scene.folder / "kernel.cpp"
    source.write_text("#include <map>\n#include <regex>\nstd::map<int, std::regex> kernels;\n")
    until = time.monotonic() + 30.0
    while time.monotonic() < until:
        subprocess.run(
            ["c++", "-O1", "-shared", "-fPIC", "-o", f"{source}.so", str(source)], check=True
        )


def evaluate(scene: Scene) -> None:
    """Healthy: one rank evaluates on its device for half a minute."""
    correct = scene.trainer.device.value()
    until = time.monotonic() + 30.0
    while time.monotonic() < until:
        scene.trainer.device.launch(0.2)
        correct.item()
