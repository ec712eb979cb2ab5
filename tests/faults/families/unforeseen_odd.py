"""Healthy jobs that look ill: long silent work, pauses that end, leftovers that harm nobody."""

from __future__ import annotations

import fcntl
import gc
import os
import re
import shutil
import signal
import socket
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from tests.faults.controls import LONG_S, QUICK_STEPS, control

if TYPE_CHECKING:
    from tests.faults.grpo import Trainer

SILENCE_S = 40.0
EVERYBODY = (0, 1, 2, 3)


@control("40 s of silent work in Python", "rollout")
def simulate(_trainer: Trainer, _folder: Path) -> None:
    until = time.monotonic() + SILENCE_S
    while time.monotonic() < until:
        sum(range(10_000))


@control("20 s of sorting in C on rank 0", "update", ranks=(0,))
def join_tables(_trainer: Trainer, _folder: Path) -> None:
    import numpy as np

    until = time.monotonic() + 20.0
    while time.monotonic() < until:
        np.sort(np.random.default_rng(17).random(10_000_000))


@control("a checkpoint read slowly", "rollout", ranks=(2,))
def load_checkpoint(trainer: Trainer, folder: Path) -> None:
    """Half a megabyte a second, in pieces, as from a busy network file system."""
    path = folder / f"checkpoint{trainer.step}"
    os.mkfifo(path)
    storage = os.fork()
    if storage == 0:
        with path.open("wb", buffering=0) as file:
            for _ in range(int(LONG_S * 4)):
                file.write(bytes(128 << 10))
                time.sleep(0.25)
        os._exit(0)
    with path.open("rb", buffering=0) as file:
        while file.read(1 << 20):
            pass
    os.waitpid(storage, 0)


@control("a rank held back by stop and continue", "rollout")
def be_limited(trainer: Trainer, _folder: Path) -> None:
    """What cpulimit does to keep a process at half a core."""
    if trainer.step == QUICK_STEPS:
        pid = os.getpid()
        if os.fork() == 0:
            while True:
                os.kill(pid, signal.SIGSTOP)
                time.sleep(0.05)
                os.kill(pid, signal.SIGCONT)
                time.sleep(0.05)
    sum(range(1_000_000))


@control("tokenization in threads", "rollout", ranks=(3,))
def tokenize(_trainer: Trainer, _folder: Path) -> None:
    until = time.monotonic() + LONG_S
    words = re.compile(r"\w+|[^\w\s]+")

    def split(text: str) -> int:
        count = 0
        while time.monotonic() < until:
            count += len(words.findall(text))
        return count

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(split, ["How many apples are left, if 3 of 8 are eaten? " * 200] * 4))


@control("garbage collections of a large heap", "update", ranks=EVERYBODY)
def collect_garbage(trainer: Trainer, _folder: Path) -> None:
    if trainer.step == QUICK_STEPS:
        vars(trainer)["rows"] = [[i] for i in range(1_000_000)]
    gc.collect()


@control("a stopped launcher", "rollout", ranks=(0,))
def lose_the_launcher(trainer: Trainer, _folder: Path) -> None:
    """Its ranks train on; only nobody would notice their end."""
    if trainer.step == QUICK_STEPS:
        os.kill(os.getppid(), signal.SIGSTOP)


@control("leftovers of a sandbox", "reward", ranks=EVERYBODY)
def leave_processes(trainer: Trainer, _folder: Path) -> None:
    """A stopped child, dead ones that nobody collects, and one that waits for ever."""
    if trainer.step == QUICK_STEPS:
        for command in (["true"], ["true"], ["sleep", "3600"], ["sleep", "3601"]):
            child = subprocess.Popen(command)
            vars(trainer).setdefault("children", []).append(child)
        child.send_signal(signal.SIGSTOP)


@control("threads that wait for ever", "update", ranks=EVERYBODY)
def start_threads(trainer: Trainer, _folder: Path) -> None:
    """A lock that is never given back, a server that never answers: of no concern to the steps."""
    if trainer.step == QUICK_STEPS:
        lock, (ours, theirs) = threading.Lock(), socket.socketpair()
        lock.acquire()
        vars(trainer)["open"] = theirs
        for waits in (lock.acquire, lambda: ours.recv(1)):
            threading.Thread(target=waits, daemon=True).start()


@control("a rank under strace", "rollout")
def be_traced(trainer: Trainer, _folder: Path) -> None:
    if trainer.step == QUICK_STEPS and shutil.which("strace"):
        command = ["strace", "-f", "-qq", "-o", os.devnull, "-p", str(os.getpid())]
        vars(trainer)["tracer"] = subprocess.Popen(command)


@control("ranks that take turns at a lock", "rollout", ranks=EVERYBODY)
def read_cache_in_turns(_trainer: Trainer, folder: Path) -> None:
    with (folder / "cache.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        until = time.monotonic() + 1.0
        while time.monotonic() < until:
            sum(range(10_000))


@control("half of the ranks at work on their own", "reward", ranks=EVERYBODY)
def judge_in_pairs(trainer: Trainer, _folder: Path) -> None:
    """Two ranks call many collectives of their own group while the others wait in the world."""
    import torch
    import torch.distributed as dist

    if trainer.step == QUICK_STEPS:
        vars(trainer)["judges"] = dist.new_group([0, 1])
    if trainer.rank < 2:
        logits = torch.ones(96, 96)
        for _ in range(40):
            until = time.monotonic() + LONG_S / 40
            while time.monotonic() < until:
                torch.tanh(logits @ trainer.weights)
            dist.all_reduce(logits, group=vars(trainer)["judges"])
