"""Waits of several links, of every rank at once, and rings through something that is no collective.

Held out: written by someone who had not read the causes, labelled before the first attach.
"""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from tests.faults.families.storage import freeze_disk
from tests.faults.families.unforeseen_waiting import address, server
from tests.faults.host import disk, eventually, http_server, silent_fuse
from tests.faults.registry import MAY_ANSWER, Scene, fault

HOUR_S = 3600
CHILD = ("child-stuck", "reward-blocked")
FORK = multiprocessing.get_context("fork")


def everybody(_culprit: int, world: int) -> frozenset[int]:
    return frozenset(range(world))


@fault("the judge of every rank is silent", "reward-blocked", phase="reward", everyone=True,
       needs=server("generates"), guilty=everybody, states=MAY_ANSWER)  # fmt: skip
def score_everywhere(scene: Scene) -> None:
    if scene.guilty:
        scene.takes_effect()
    urllib.request.urlopen(address(scene, "score"), data=b"{}").read()


@fault("the data of every rank is on a hung mount", "storage-blocked", phase="rollout",
       everyone=True, needs=silent_fuse, guilty=everybody, world_size=8)  # fmt: skip
def read_everywhere(scene: Scene) -> None:
    if scene.guilty:
        scene.takes_effect()
    Path(scene.facts["disk"], f"prompts-{scene.rank}.jsonl").read_bytes()


@fault("every rank sleeps in the rollout", "user-code-blocked", phase="rollout", everyone=True,
       guilty=everybody)  # fmt: skip
def wait_everywhere(scene: Scene) -> None:
    if scene.guilty:
        scene.takes_effect()
    time.sleep(HOUR_S)


@fault(
    "a barrier under a file lock that another rank wants", "lock-held", phase="update",
    everyone=True, guilty=lambda culprit, world: frozenset({culprit, (culprit + 1) % world}),
)  # fmt: skip
def prepare_under_lock(scene: Scene) -> None:
    """The partner has the lock and waits for all; the culprit wants the lock first."""
    import torch.distributed as dist

    path, taken = scene.folder / "prepare.lock", scene.folder / "taken"
    if scene.guilty:
        eventually("the partner has the lock", taken.exists)
    if scene.guilty or scene.rank == scene.partner:
        lock = os.open(path, os.O_RDWR | os.O_CREAT)
        if scene.guilty:
            scene.takes_effect()
        fcntl.flock(lock, fcntl.LOCK_EX)
        taken.touch()
    dist.barrier()


@fault("two ranks wait for silent judges", "reward-blocked", phase="reward", everyone=True,
       needs=server("generates"), world_size=8,
       guilty=lambda culprit, world: frozenset({culprit, (culprit + 1) % world}),
       states=MAY_ANSWER)  # fmt: skip
def score_on_two(scene: Scene) -> None:
    if scene.rank in {scene.culprit, scene.partner}:
        if scene.guilty:
            scene.takes_effect()
        urllib.request.urlopen(address(scene, "score"), data=b"{}").read()


@fault("a thread of a pool waits for a child", *CHILD, phase="reward")
def score_in_threads(scene: Scene) -> None:
    scene.takes_effect()
    with ThreadPoolExecutor(4, "reward") as pool:
        list(pool.map(lambda s: subprocess.run(["sleep", str(s)], check=False), [0, 0, HOUR_S]))


@fault("a worker of a pool waits for a server", *CHILD, phase="reward", needs=http_server,
       states=MAY_ANSWER)  # fmt: skip
def score_in_processes(scene: Scene) -> None:
    pool = ProcessPoolExecutor(2, FORK)
    score = pool.submit(_ask, scene.facts["port"])
    scene.takes_effect()
    score.result()


def _ask(port: int) -> bytes:
    with socket.create_connection(("127.0.0.1", port)) as judge:
        return judge.recv(1)


@fault("a child of a child waits for its input", *CHILD, phase="reward", world_size=2)
def run_nested(scene: Scene) -> None:
    code = "import subprocess; subprocess.Popen(['cat'], stdin=subprocess.PIPE).wait()"
    scene.takes_effect()
    subprocess.run([sys.executable, "-S", "-c", code], check=False)


@fault("a child fills its error output", *CHILD, phase="reward")
def read_only_output(scene: Scene) -> None:
    code = "import sys; sys.stderr.write('x' * 1000000); print('passed')"
    child = subprocess.Popen(
        [sys.executable, "-S", "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert child.stdout is not None
    scene.takes_effect()
    child.stdout.read()


@fault("a metrics writer on a frozen disk fills its queue", "storage-blocked", phase="update",
       needs=disk, outside=freeze_disk, modules=("tensorboard",))  # fmt: skip
def write_metrics(scene: Scene) -> None:
    from torch.utils.tensorboard import SummaryWriter

    writer: Any = SummaryWriter(scene.facts["disk"], max_queue=2, flush_secs=1)
    scene.arrived()
    while True:
        writer.add_text("completion", "token " * 20_000)


@fault("a prefetching thread reads a hung mount", "storage-blocked", "dataload-blocked",
       phase="rollout", needs=silent_fuse)  # fmt: skip
def prefetch(scene: Scene) -> None:
    shards: list[bytes] = []
    ready = threading.Event()

    def read() -> None:
        shards.append(Path(scene.facts["disk"], "shard-00001").read_bytes())
        ready.set()

    threading.Thread(target=read, name="prefetch", daemon=True).start()
    scene.takes_effect()
    ready.wait()


@fault("free space of a hung mount", "storage-blocked", phase="update", needs=silent_fuse,
       world_size=2)  # fmt: skip
def look_for_space(scene: Scene) -> None:
    scene.takes_effect()
    os.statvfs(scene.facts["disk"])


def _tokenize(row: dict[str, int], stop_at: int) -> dict[str, int]:
    if row["prompt"] == stop_at:
        time.sleep(HOUR_S)
    return row


@fault("datasets.map with a worker that sleeps", "dataload-blocked", "child-stuck",
       phase="rollout", modules=("datasets",))  # fmt: skip
def map_dataset(scene: Scene) -> None:
    from datasets import Dataset, disable_progress_bars

    disable_progress_bars()
    rows = Dataset.from_dict({"prompt": list(range(16))})
    scene.takes_effect()
    rows.map(partial(_tokenize, stop_at=3), num_proc=2, load_from_cache_file=False)


class Rows:
    """Rows of a data set with a lock around its reader, as a cached file handle has."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def __len__(self) -> int:
        return 64

    def __getitem__(self, row: int) -> int:
        with self.lock:
            return row


@fault("a loader's worker got a held lock by fork", "dataload-blocked", "lock-held",
       phase="rollout")  # fmt: skip
def next_batch(scene: Scene) -> None:
    from torch.utils.data import DataLoader

    rows = Rows()
    with rows.lock:
        batches = iter(DataLoader(rows, batch_size=4, num_workers=1))  # type: ignore[arg-type]
    scene.takes_effect()
    next(batches)


class EndlessRows(Rows):
    """Rows whose filter never finds one that is short enough."""

    def __getitem__(self, row: int) -> int:
        while True:
            row = (row * 1103515245 + 12345) & 0xFFFFFFFF


@fault("a loader's worker filters without end", "dataload-blocked", phase="rollout",
       states=("stuck", "slow"), busy=True)  # fmt: skip
def next_filtered(scene: Scene) -> None:
    from torch.utils.data import DataLoader

    scene.takes_effect()
    next(iter(DataLoader(EndlessRows(), batch_size=4, num_workers=1)))  # type: ignore[arg-type]
