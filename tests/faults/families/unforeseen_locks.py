"""Locks below or beside those of Python's `threading`: of signals, imports, C libraries.

Held out: written by someone who had not read the causes, labelled before the first attach.
"""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import sys
import threading
import time

from tests.faults.registry import Scene, fault

OWN = ("thread-deadlock", "lock-held")  # a thread waits for a lock that it has itself


@fault("a signal's handler wants a lock that its thread has", *OWN, phase="update")
def save_on_alarm(scene: Scene) -> None:
    metrics = threading.Lock()

    def save(*_: object) -> None:
        with metrics:
            pass

    signal.signal(signal.SIGALRM, save)
    with metrics:
        signal.alarm(1)
        scene.takes_effect()
        time.sleep(3600)


@fault("a finalizer wants a lock that its thread has", *OWN, phase="rollout", world_size=2)
def drop_engine(scene: Scene) -> None:
    registry = threading.Lock()

    class Engine:
        def __init__(self) -> None:
            self.itself = self

        def __del__(self) -> None:
            with registry:
                pass

    Engine()
    scene.takes_effect()
    with registry:
        gc.collect()


@fault("a lock taken twice", *OWN, phase="compute_logprobs")
def log_twice(scene: Scene) -> None:
    lock = threading.Lock()

    def log() -> None:
        with lock:
            pass

    scene.takes_effect()
    with lock:
        log()


@fault("an import that waits for an import", *OWN, "user-code-blocked", phase="rollout")
def import_plugin(scene: Scene) -> None:
    """A module that starts a thread on import and joins it, and the thread imports the module."""
    plugin = scene.folder / "rollout_plugin.py"
    plugin.write_text(
        "import threading\n"
        "def load():\n    from rollout_plugin import tools\n"
        "thread = threading.Thread(target=load)\nthread.start()\nthread.join()\ntools = []\n"
    )
    sys.path.insert(0, str(scene.folder))
    scene.takes_effect()
    __import__("rollout_plugin")


@fault("a mutex of a C library, taken twice", *OWN, "user-code-blocked", phase="rollout")
def tokenize_twice(scene: Scene) -> None:
    libc = ctypes.CDLL(None)
    mutex = ctypes.create_string_buffer(64)
    libc.pthread_mutex_lock(mutex)
    scene.takes_effect()
    libc.pthread_mutex_lock(mutex)


@fault("a child that got OpenMP's threads by fork", "child-stuck", "lock-held", "reward-blocked",
       phase="reward")  # fmt: skip
def embed_in_a_child(scene: Scene) -> None:
    import torch

    torch.set_num_threads(2)
    torch.ones(2000, 2000).exp().sum()
    child = os.fork()
    if child == 0:
        torch.ones(2000, 2000).exp().sum()
        os._exit(0)
    scene.takes_effect()
    os.waitpid(child, 0)


@fault("three threads in a ring of locks", "thread-deadlock", phase="update", world_size=8)
def update_in_a_ring(scene: Scene) -> None:
    locks = [threading.Lock() for _ in range(3)]
    all_hold = threading.Barrier(3)

    def hold(first: int) -> None:
        with locks[first]:
            all_hold.wait()
            with locks[(first + 1) % 3]:
                pass

    for first in (1, 2):
        threading.Thread(target=hold, args=(first,), name=f"shard-{first}", daemon=True).start()
    scene.takes_effect()
    hold(0)


@fault("an RLock of a thread that has ended", "lock-held", "thread-deadlock", phase="update")
def use_after_owner(scene: Scene) -> None:
    lock = threading.RLock()
    owner = threading.Thread(target=lock.acquire, name="evaluator")
    owner.start()
    owner.join()
    scene.takes_effect()
    with lock:
        pass


@fault("C code that keeps the GIL in a thread", "gil-held", phase="update")
def compress_in_a_thread(scene: Scene) -> None:
    started = threading.Event()

    def compress() -> None:
        started.set()
        ctypes.PyDLL(None).sleep(3600)

    scene.takes_effect()
    threading.Thread(target=compress, name="compressor", daemon=True).start()
    started.wait()
    time.sleep(0.01)
