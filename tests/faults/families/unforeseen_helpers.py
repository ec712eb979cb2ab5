"""Children and pools of a rank that do not answer or end.

Held out: written by someone who had not read the causes, labelled before the first attach.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from tests.faults.host import eventually, silent_fuse
from tests.faults.registry import Scene, fault

HOUR_S = 3600
BUSY = ("stuck", "slow")  # nobody knows yet whether it ends
CHILD = ("child-stuck", "reward-blocked")  # of a reward that waits for its own child
BUSY_CHILD = (*CHILD, "reward-busy")
FORK = multiprocessing.get_context("fork")


def _load_grader() -> None:
    time.sleep(HOUR_S)


@fault("a process pool whose initializer hangs", *CHILD, phase="reward")
def grade_in_processes(scene: Scene) -> None:
    pool = ProcessPoolExecutor(2, FORK, initializer=_load_grader)
    score = pool.submit(abs, -1)
    scene.takes_effect()
    score.result()


@fault("the server of a Manager is stopped", "child-stuck", phase="update", world_size=2)
def read_shared_state(scene: Scene) -> None:
    manager = FORK.Manager()
    state = manager.dict(step=1)
    os.kill(manager._process.pid, signal.SIGSTOP)  # type: ignore[attr-defined]
    scene.takes_effect()
    state.get("step")


def _return_rollouts(results: Any) -> None:
    results.put("token " * 200_000)


@fault("a child joined before its queue is read", *CHILD, phase="reward")
def join_then_read(scene: Scene) -> None:
    results = FORK.Queue()
    child = FORK.Process(target=_return_rollouts, args=(results,))
    child.start()
    scene.takes_effect()
    child.join()
    results.get()


def _hold(lock: Any, held: Any) -> None:
    lock.acquire()
    held.set()
    signal.pause()


@fault("a multiprocessing lock of a killed worker", "lock-held", phase="rollout")
def use_shared_tokenizer(scene: Scene) -> None:
    lock, held = FORK.Lock(), FORK.Event()
    worker = FORK.Process(target=_hold, args=(lock, held))
    worker.start()
    held.wait()
    worker.kill()
    worker.join()
    scene.takes_effect()
    lock.acquire()


@fault("a program under test reads its standard input", *CHILD, phase="reward")
def run_solution(scene: Scene) -> None:
    child = subprocess.Popen(
        [sys.executable, "-S", "-c", "print(int(input()))"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    scene.takes_effect()
    child.wait()


@fault("a program under test never ends", *BUSY_CHILD, phase="reward", states=BUSY, busy=True)
def run_endless_solution(scene: Scene) -> None:
    scene.takes_effect()
    subprocess.run([sys.executable, "-S", "-c", "while True: pass"], check=False)


@fault("a program under test forks without end", *BUSY_CHILD, phase="reward", states=BUSY,
       busy=True)  # fmt: skip
def run_forking_solution(scene: Scene) -> None:
    scene.takes_effect()
    subprocess.run(["sh", "-c", "while :; do /bin/true; done"], capture_output=True, check=False)


@fault("a sandbox that is stopped", *CHILD, phase="reward", world_size=8)
def run_stopped_sandbox(scene: Scene) -> None:
    child = subprocess.Popen(["sleep", "3"], stdout=subprocess.PIPE)
    os.kill(child.pid, signal.SIGSTOP)
    scene.takes_effect()
    child.communicate()


@fault("a shell pipe whose reader does not read", *CHILD, phase="reward")
def run_piped_tests(scene: Scene) -> None:
    scene.takes_effect()
    subprocess.run(f"yes ok | sleep {HOUR_S}", shell=True, check=False)


@fault("asyncio waits for a sandbox", *CHILD, phase="reward", world_size=2)
def run_async_sandbox(scene: Scene) -> None:
    async def run() -> None:
        child = await asyncio.create_subprocess_exec(
            "sleep", str(HOUR_S), stdout=asyncio.subprocess.PIPE
        )
        scene.takes_effect()
        await child.communicate()

    asyncio.run(run())


@fault("a copy from a hung mount in a child", "child-stuck", "storage-blocked", phase="update",
       needs=silent_fuse)  # fmt: skip
def copy_checkpoint(scene: Scene) -> None:
    scene.takes_effect()
    subprocess.run(["cp", "-r", scene.facts["disk"] + "/base", str(scene.folder)], check=False)


def _serve_scores(pipe: Any) -> None:
    while True:
        pipe.send(len(pipe.recv()))


@fault("a worker at the end of a Pipe is stopped", *CHILD, phase="reward")
def ask_worker(scene: Scene) -> None:
    ours, theirs = FORK.Pipe()
    worker = FORK.Process(target=_serve_scores, args=(theirs,), daemon=True)
    worker.start()
    ours.send("warm up")
    ours.recv()
    os.kill(worker.pid or 0, signal.SIGSTOP)
    ours.send("answer")
    scene.takes_effect()
    ours.recv()


@fault("metrics queue full, its service is stopped", "child-stuck", "user-code-blocked",
       phase="update")  # fmt: skip
def log_to_service(scene: Scene) -> None:
    ours, theirs = socket.socketpair()
    service = subprocess.Popen(["cat"], stdin=theirs.fileno(), stdout=subprocess.DEVNULL)
    os.kill(service.pid, signal.SIGSTOP)
    records: queue.Queue[bytes] = queue.Queue(maxsize=8)

    def send() -> None:
        while True:
            ours.sendall(records.get())

    threading.Thread(target=send, name="MetricsSender", daemon=True).start()
    eventually("the service has no room", lambda: not _sendable(ours))
    scene.takes_effect()
    while True:
        records.put(bytes(100_000))


def _sendable(connection: socket.socket) -> bool:
    try:
        connection.send(bytes(100_000), socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    return True
