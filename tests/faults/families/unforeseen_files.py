"""Files, locks and disks that are not given to a rank.

Held out: written by someone who had not read the causes, labelled before the first attach.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.faults.families.storage import freeze_disk
from tests.faults.host import (
    LIBC,
    disk,
    eventually,
    silent_fuse,
    small_tmpfs,
)
from tests.faults.registry import Scene, fault

BUSY = ("stuck", "slow")  # a loop that tries again may succeed the next time
MS_REMOUNT, MS_RDONLY = 32, 1


@fault("a flag file that is never written", "user-code-blocked", phase="update", states=BUSY)
def wait_for_flag(scene: Scene) -> None:
    scene.takes_effect()
    while not (scene.folder / "optimizer.ready").exists():
        time.sleep(1.0)


def _owner(take: Callable[[], object], taken: Path) -> None:
    """A process of the job that has the lock and does not give it back."""
    if os.fork() == 0:
        keep = take()
        taken.touch()
        signal.pause()
        del keep
    eventually("the lock is taken", taken.exists)


@fault("a reward cache in SQLite is locked", "lock-held", "storage-blocked", "reward-blocked",
       phase="reward")  # fmt: skip
def read_reward_cache(scene: Scene) -> None:
    path = scene.folder / "rewards.db"

    def take() -> object:
        connection = sqlite3.connect(path, isolation_level=None)
        connection.execute("CREATE TABLE scores(answer)")
        connection.execute("BEGIN EXCLUSIVE")
        return connection

    _owner(take, scene.folder / "taken")
    cache = sqlite3.connect(path, timeout=3600)
    scene.takes_effect()
    cache.execute("SELECT * FROM scores").fetchall()


@fault(
    "a FileLock that another process holds",
    "lock-held",
    phase="rollout",
    world_size=8,
    modules=("filelock",),
)
def lock_dataset(scene: Scene) -> None:
    from filelock import FileLock

    path = str(scene.folder / "dataset.lock")
    _owner(lambda: (lock := FileLock(path)).acquire() and lock, scene.folder / "taken")
    scene.takes_effect()
    FileLock(path).acquire()


@fault(
    "a soft lock file that was left behind",
    "lock-held",
    phase="rollout",
    states=BUSY,
    modules=("filelock",),
)
def lock_hub_cache(scene: Scene) -> None:
    from filelock import SoftFileLock

    path = scene.folder / "models--tiny.lock"
    path.touch()
    scene.takes_effect()
    SoftFileLock(str(path)).acquire()


@fault("lockf held by another process", "lock-held", "storage-blocked", phase="update")
def lock_checkpoint(scene: Scene) -> None:
    path = scene.folder / "checkpoint.lock"

    def take() -> int:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
        fcntl.lockf(descriptor, fcntl.LOCK_EX)
        return descriptor

    _owner(take, scene.folder / "taken")
    ours = os.open(path, os.O_RDWR)
    scene.takes_effect()
    fcntl.lockf(ours, fcntl.LOCK_EX)


@fault("a FIFO that nobody reads", "storage-blocked", "user-code-blocked", phase="update",
       world_size=2)  # fmt: skip
def open_metrics_pipe(scene: Scene) -> None:
    path = scene.folder / "metrics.pipe"
    os.mkfifo(path)
    scene.takes_effect()
    path.open("wb")


@fault(
    "an image that is a FIFO",
    "storage-blocked",
    "dataload-blocked",
    phase="rollout",
    modules=("PIL",),
)
def decode_image(scene: Scene) -> None:
    from PIL import Image

    path = scene.folder / "photo.png"
    os.mkfifo(path)
    scene.takes_effect()
    Image.open(path).load()


@fault("a mapped file on a frozen disk", "storage-blocked", phase="update", needs=disk,
       outside=freeze_disk)  # fmt: skip
def write_mapped_optimizer(scene: Scene) -> None:
    import numpy as np

    path = Path(scene.facts["disk"], "optimizer.bin")
    state = np.memmap(path, np.float32, "w+", shape=(1 << 20,))
    scene.arrived()
    while True:
        state[:] = state + 1.0
        state.flush()


@fault("a checkpoint saved by a thread to a hung mount", "storage-blocked", phase="update",
       needs=silent_fuse)  # fmt: skip
def save_in_background(scene: Scene) -> None:
    import torch

    with ThreadPoolExecutor(1, "checkpoint") as pool:
        saved = pool.submit(torch.save, {"step": 1}, scene.facts["disk"] + "/model.pt")
        scene.takes_effect()
        saved.result()


@fault("a read-only disk, tried again and again", "storage-blocked", "user-code-blocked",
       phase="update", states=BUSY, needs=small_tmpfs)  # fmt: skip
def save_on_read_only_disk(scene: Scene) -> None:
    mount = scene.facts["disk"].encode()
    assert LIBC.mount(b"tmpfs", mount, b"tmpfs", MS_REMOUNT | MS_RDONLY, None) == 0, (
        ctypes.get_errno()
    )
    scene.takes_effect()
    while True:
        try:
            Path(scene.facts["disk"], "model.pt").write_bytes(b"weights")
        except OSError:
            time.sleep(1.0)
