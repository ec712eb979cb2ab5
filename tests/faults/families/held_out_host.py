"""Held out: locks, threads, files, terminals and cores, as users have reported it."""

from __future__ import annotations

import ctypes
import fcntl
import getpass
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from tests.faults.families.control import start_log_uploader
from tests.faults.host import disk, each_thread, eventually, http_server
from tests.faults.registry import MAY_ANSWER, Outside, Scene, fault

HOUR_S = 3600
ASKS = ("stuck", "slow")
ENDED = ("stuck", "dead")


@fault("a file lock that a helper has inherited", "lock-held", phase="rollout")
def index_twice(scene: Scene) -> None:
    path = scene.folder / "index.lock"
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if os.fork() == 0:  # a service for the index; it keeps what it has inherited
            signal.pause()
    with path.open("w") as lock:
        scene.takes_effect()
        fcntl.flock(lock, fcntl.LOCK_EX)


@fault("a build lock of torch that was left behind", "lock-held", phase="rollout", states=ASKS)
def load_extension(scene: Scene) -> None:
    from torch.utils.file_baton import FileBaton

    path = scene.folder / "lock"
    path.touch()  # of a build that was killed
    scene.takes_effect()
    FileBaton(str(path)).wait()


@fault("a login asks for a key at the terminal", "user-code-blocked", phase="update",
       extra={"terminal": True})  # fmt: skip
def log_in(scene: Scene) -> None:
    scene.takes_effect()
    getpass.getpass("API key: ")


@fault("git asks for a password at the terminal", "child-stuck", phase="compute_logprobs",
       extra={"terminal": True})  # fmt: skip
def fetch_revision(scene: Scene) -> None:
    scene.takes_effect()
    subprocess.run(["sh", "-c", "read -r password < /dev/tty"], check=False)


@fault("told of new files by inotify, and there are none", "user-code-blocked",
       phase="compute_logprobs")  # fmt: skip
def wait_for_snapshot(scene: Scene) -> None:
    (scene.folder / "snapshots").mkdir()
    libc = ctypes.CDLL(None)
    watch = libc.inotify_init1(0)
    libc.inotify_add_watch(watch, bytes(scene.folder / "snapshots"), 0x100)
    scene.takes_effect()
    os.read(watch, 4096)


@fault("a checkpoint piped into an uploader that is stuck", "child-stuck", "user-code-blocked",
       phase="update", needs=http_server, states=MAY_ANSWER)  # fmt: skip
def upload_checkpoint(scene: Scene) -> None:
    client = (
        "import socket, sys\n"
        "bucket = socket.create_connection(('127.0.0.1', int(sys.argv[1])))\n"
        "while piece := sys.stdin.buffer.read(65536): bucket.sendall(piece)\n"
    )
    command = [sys.executable, "-S", "-c", client, str(scene.facts["port"])]
    uploader = subprocess.Popen(command, stdin=subprocess.PIPE)
    assert uploader.stdin is not None
    scene.takes_effect()
    uploader.stdin.write(bytes(64 << 20))


def freeze_disk(outside: Outside) -> None:
    folder = outside.facts["disk"]
    outside.undo.callback(subprocess.run, ["fsfreeze", "-u", folder], check=False)
    subprocess.run(["fsfreeze", "-f", folder], check=True)
    (outside.folder / "acted").touch()


@fault("old checkpoints deleted from a frozen disk", "storage-blocked", phase="update",
       needs=disk, outside=freeze_disk)  # fmt: skip
def rotate_checkpoints(scene: Scene) -> None:
    old = Path(scene.facts["disk"], "checkpoint-20")
    old.mkdir()
    (old / "model.safetensors").write_bytes(bytes(4096))
    scene.arrived()
    eventually("the disk is frozen", (scene.folder / "acted").exists)
    scene.takes_effect()
    shutil.rmtree(old)


def _send_tensor(results: Any) -> None:
    import torch

    results.put(torch.ones(1024))
    time.sleep(HOUR_S)


@fault("a shared tensor whose sender is stopped", "child-stuck", phase="rollout")
def receive_tensor(scene: Scene) -> None:
    import torch.multiprocessing as mp

    context = mp.get_context("fork")
    results: Any = context.Queue()
    sender = context.Process(target=_send_tensor, args=(results,), daemon=True)
    sender.start()
    assert results._reader.poll(20)
    assert sender.pid is not None
    os.kill(sender.pid, signal.SIGSTOP)
    scene.takes_effect()
    results.get()


@fault("a thread is joined while its lock is held", "thread-deadlock", phase="update")
def close_writer(scene: Scene) -> None:
    lock = threading.Lock()

    def flush() -> None:
        with lock:
            pass

    with lock:
        writer = threading.Thread(target=flush, name="writer")
        writer.start()
        scene.takes_effect()
        writer.join()


@fault("a condition awaited under a second lock", "thread-deadlock", "lock-held",
       phase="compute_logprobs")  # fmt: skip
def wait_for_reference(scene: Scene) -> None:
    model, ready = threading.Lock(), threading.Condition()

    def load() -> None:
        with model, ready:
            ready.notify()

    with model, ready:
        threading.Thread(target=load, name="loader", daemon=True).start()
        scene.takes_effect()
        ready.wait()


@fault("threads meet at a barrier, one has failed", "user-code-blocked", phase="rollout")
def generate_in_threads(scene: Scene) -> None:
    meeting = threading.Barrier(3)

    def generate(prompt: str) -> None:
        assert prompt
        meeting.wait()

    for prompt in ("a prompt", ""):
        threading.Thread(target=generate, args=(prompt,), daemon=True).start()
    scene.takes_effect()
    meeting.wait()


@fault("C code waits for a file lock with the GIL, in a thread", "gil-held", "lock-held",
       phase="update")  # fmt: skip
def record_in_c(scene: Scene) -> None:
    path = scene.folder / "records.lock"
    owner = os.fork()
    if owner == 0:
        with path.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            (scene.folder / "locked").touch()
            signal.pause()
    eventually("the lock is taken", (scene.folder / "locked").exists)

    def append() -> None:
        with path.open("w") as lock:
            ctypes.PyDLL(None).flock(lock.fileno(), fcntl.LOCK_EX)

    scene.takes_effect()
    threading.Thread(target=append, name="recorder", daemon=True).start()
    time.sleep(1)


def crowd_out(outside: Outside) -> None:
    """The rank may run when nobody else wants to, and somebody always does."""
    idle = os.sched_param(0)

    def give_way(thread: int) -> None:
        os.sched_setaffinity(thread, {0})
        os.sched_setscheduler(thread, os.SCHED_IDLE, idle)

    each_thread(outside.pid, give_way)
    hog = subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"])
    outside.undo.callback(hog.wait)
    outside.undo.callback(hog.kill)
    os.sched_setaffinity(hog.pid, {0})


@fault("a rank that runs only when its core is idle", "cpu-starved", phase="rollout",
       states=ASKS, outside=crowd_out, busy=True)  # fmt: skip
def generate_when_idle(scene: Scene) -> None:
    def work(phase: str, _trainer: object) -> bool:
        until = time.thread_time() + 0.2 * (phase == "rollout")
        while time.thread_time() < until:
            sum(range(1000))
        return False

    scene.trainer.happens = work
    scene.arrived()


@fault("a segmentation fault, peers do not notice", "rank-dead", phase="rollout", states=ENDED)
def tokenize_in_c(scene: Scene) -> None:
    start_log_uploader()
    scene.takes_effect()
    ctypes.string_at(0)
