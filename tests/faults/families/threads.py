"""Threads, locks and event loops of a rank that wait for each other, or for nobody."""

from __future__ import annotations

import asyncio
import ctypes
import os
import queue
import threading
import time

from tests.faults.registry import Scene, fault

HOUR_S = 3600


@fault("fork while a lock is held", "child-stuck", "lock-held", phase="rollout")
def tokenize_in_a_child(scene: Scene) -> None:
    lock, held = threading.Lock(), threading.Event()

    def log() -> None:
        with lock:
            held.set()
            time.sleep(HOUR_S)

    threading.Thread(target=log, daemon=True).start()
    held.wait()
    child = os.fork()
    if child == 0:
        with lock:
            os._exit(0)
    scene.takes_effect()
    os.waitpid(child, 0)


@fault("locks taken in opposite orders", "thread-deadlock", phase="update")
def update_with_metrics(scene: Scene) -> None:
    weights, metrics, barrier = threading.Lock(), threading.Lock(), threading.Barrier(2)

    def report() -> None:
        with metrics:
            barrier.wait()
            with weights:
                pass

    threading.Thread(target=report, name="metrics", daemon=True).start()
    with weights:
        barrier.wait()
        scene.takes_effect()
        with metrics:
            pass


@fault(
    "a lock that another thread never gives back", "lock-held", "thread-deadlock", phase="rollout"
)
def read_prompt_cache(scene: Scene) -> None:
    lock, held = threading.Lock(), threading.Event()

    def refresh() -> None:
        with lock:
            held.set()
            time.sleep(HOUR_S)

    threading.Thread(target=refresh, name="cache-refresh", daemon=True).start()
    held.wait()
    scene.takes_effect()
    with lock:
        pass


@fault("C code that keeps the GIL", "gil-held", phase="rollout")
def tokenize_in_c(scene: Scene) -> None:
    scene.takes_effect()
    ctypes.PyDLL(None).sleep(HOUR_S)


@fault("a future that nobody sets", "user-code-blocked", phase="rollout")
def generate_async(scene: Scene) -> None:
    async def generate() -> None:
        await asyncio.get_running_loop().create_future()

    scene.takes_effect()
    asyncio.run(generate())


@fault("a semaphore that leaked", "user-code-blocked", "lock-held", phase="rollout")
def generate_within_limits(scene: Scene) -> None:
    limit = threading.Semaphore(2)
    for _ in range(2):
        limit.acquire()
    scene.takes_effect()
    with limit:
        pass


@fault("a queue whose producer died", "user-code-blocked", phase="rollout")
def read_completions(scene: Scene) -> None:
    completions: queue.Queue[str] = queue.Queue()
    producer = threading.Thread(target=lambda: None, name="producer")
    producer.start()
    producer.join()
    scene.takes_effect()
    completions.get()
