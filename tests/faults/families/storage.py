"""Files that cannot be read or written for now: hung mounts, frozen, full and slow disks."""

from __future__ import annotations

import errno
import os
import subprocess
import time
from pathlib import Path

from tests.faults.host import Unavailable, disk, silent_fuse, small_tmpfs
from tests.faults.registry import Outside, Scene, fault


@fault("a FIFO that nobody writes", "storage-blocked", "user-code-blocked", phase="rollout")
def read_prompts(scene: Scene) -> None:
    path = scene.folder / "prompts.jsonl"
    os.mkfifo(path)
    scene.takes_effect()
    path.read_bytes()


@fault("a mount whose server is silent", "storage-blocked", phase="rollout", needs=silent_fuse)
def load_prompts(scene: Scene) -> None:
    scene.takes_effect()
    Path(scene.facts["disk"], "prompts.jsonl").read_bytes()


def freeze_disk(outside: Outside) -> None:
    mount = outside.facts["disk"]
    outside.undo.callback(
        subprocess.run, ["fsfreeze", "-u", mount], capture_output=True, check=False
    )
    done = subprocess.run(["fsfreeze", "-f", mount], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Unavailable(f"fsfreeze: {done.stderr.strip()}")


@fault("a frozen disk", "storage-blocked", phase="update", outside=freeze_disk, needs=disk)
def save_checkpoint(scene: Scene) -> None:
    scene.arrived()
    while True:
        with Path(scene.facts["disk"], "model.safetensors").open("wb") as file:
            file.write(bytes(65536))
            file.flush()
            os.fsync(file.fileno())


@fault(
    "a full disk, written again and again", "storage-blocked", phase="update",
    states=("stuck", "slow"), needs=small_tmpfs,
)  # fmt: skip
def save_checkpoint_until_it_fits(scene: Scene) -> None:
    scene.takes_effect()
    with Path(scene.facts["disk"], "model.safetensors").open("wb", buffering=0) as file:
        while True:
            try:
                file.write(bytes(256 << 10))
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                time.sleep(0.5)


def slow_the_disk(outside: Outside) -> None:
    """128 KiB/s of direct writes, by the block controller."""
    numbers = Path(outside.facts["device"]).stat().st_rdev
    device = f"{os.major(numbers)}:{os.minor(numbers)}"
    limit = Path("/sys/fs/cgroup/blkio/blkio.throttle.write_bps_device")
    if not limit.exists():
        raise Unavailable(f"needs {limit}")
    limit.write_text(f"{device} {128 << 10}")
    outside.undo.callback(limit.write_text, f"{device} 0")
    (outside.folder / "slowed").touch()


@fault(
    "a slow disk under a checkpoint", "storage-blocked", phase="update", states=("slow",),
    needs=lambda: disk(96), outside=slow_the_disk,
)  # fmt: skip
def save_sharded_checkpoint(scene: Scene) -> None:
    import mmap

    page = mmap.mmap(-1, 65536)
    scene.arrived()
    while not (scene.folder / "slowed").exists():
        time.sleep(0.01)
    path = Path(scene.facts["disk"], "optimizer.bin")
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_DIRECT)
    for _ in range(1000):
        os.write(file, page)
