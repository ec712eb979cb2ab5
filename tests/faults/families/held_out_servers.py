"""Held out: engines, data and what stands between them and a rank, as users have reported it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.faults.held_out import engines
from tests.faults.host import eventually, http_server
from tests.faults.registry import MAY_ANSWER, Facts, Outside, Scene, fault
from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Sized

HOUR_S = 3600
START_S = 20.0


def post(port: int, path: str) -> None:
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data=b"{}")
    with urllib.request.urlopen(request) as answer:
        answer.read()


def facts_of(folder: Path) -> dict[str, Any]:
    path = folder / "engine.json"
    eventually("the engine is up", path.exists, START_S)
    facts: dict[str, Any] = json.loads(path.read_text())
    return facts


def start(scene: Scene, mode: str, *more: str) -> int:
    """An engine of the rank's own; its port."""
    command = [sys.executable, "-S", str(engines.__file__), mode, str(scene.folder), *more]
    subprocess.Popen(command, stdin=subprocess.DEVNULL)
    return int(facts_of(scene.folder)["port"])


@fault("generation paused for new weights, never resumed", "rollout-engine-stalled",
       phase="rollout")  # fmt: skip
def generate_after_update(scene: Scene) -> None:
    port = start(scene, "pauses")
    post(port, "/generate")
    post(port, "/pause")
    post(port, "/update_weights")
    scene.takes_effect()
    post(port, "/generate")


def _then_fails(scene: Scene, mode: str) -> None:
    """One good answer, then what the bench does, then none."""
    port = start(scene, mode)
    post(port, "/generate")
    scene.arrived()
    eventually("the bench has acted", (scene.folder / "acted").exists)
    scene.takes_effect()
    post(port, "/generate")


def stop_worker(outside: Outside) -> None:
    workers = json.loads((outside.folder / "workers.json").read_text())
    os.kill(workers[1], signal.SIGSTOP)
    (outside.folder / "acted").touch()


@fault("one of the engine's two workers is stopped", "rollout-engine-stalled", phase="rollout",
       outside=stop_worker)  # fmt: skip
def generate_in_parallel(scene: Scene) -> None:
    _then_fails(scene, "shards")


def kill_worker(outside: Outside) -> None:
    os.kill(facts_of(outside.folder)["worker"], signal.SIGKILL)
    (outside.folder / "acted").touch()


@fault("a router waits for the return of a worker that was killed", "rollout-engine-dead",
       phase="rollout", outside=kill_worker, states=("stuck", "dead"))  # fmt: skip
def generate_by_router(scene: Scene) -> None:
    _then_fails(scene, "routes")


@contextlib.contextmanager
def lock_of_another_job() -> Iterator[Facts]:
    """A file whose lock a process of nobody's job has: `lock`."""
    with tempfile.TemporaryDirectory(prefix="cache-") as name:
        path = Path(name, "compile.lock")
        with path.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            command = [sys.executable, "-S", "-c", "import signal; signal.pause()"]
            with subprocess.Popen(
                command, pass_fds=[lock.fileno()], start_new_session=True
            ) as owner:
                try:
                    yield {"lock": str(path)}
                finally:
                    owner.kill()


@fault("the engine waits for the lock of its compile cache", "rollout-engine-stalled", "lock-held",
       phase="rollout", needs=lock_of_another_job)  # fmt: skip
def generate_with_kernels(scene: Scene) -> None:
    port = start(scene, "compiles", scene.facts["lock"])
    scene.takes_effect()
    post(port, "/generate")


@fault("every rank wants the lock of another job", "lock-held", phase="rollout", everyone=True,
       guilty=lambda _culprit, world: frozenset(range(world)),
       needs=lock_of_another_job)  # fmt: skip
def lock_model_cache(scene: Scene) -> None:
    with Path(scene.facts["lock"]).open("w") as lock:
        scene.takes_effect()
        fcntl.flock(lock, fcntl.LOCK_EX)


@fault("the engine never joins the group for new weights", "weight-sync-blocked",
       phase="sync_weights", fixed_culprit=0, states=("stuck", "slow"))  # fmt: skip
def open_transfer_group(scene: Scene) -> None:
    """Torch's own store asks, sleeps and asks again."""
    from torch._C._distributed_c10d import TCPStore

    scene.takes_effect()
    TCPStore("127.0.0.1", free_port(), 2, True, timedelta(hours=1))


@fault("waiting for a line that the server never prints", "child-stuck", "user-code-blocked",
       phase="compute_logprobs")  # fmt: skip
def start_reference_server(scene: Scene) -> None:
    code = f"import sys, time; print('loading', flush=True); time.sleep({HOUR_S})"
    server = subprocess.Popen([sys.executable, "-S", "-c", code], stdout=subprocess.PIPE)
    assert server.stdout is not None
    scene.takes_effect()
    for line in server.stdout:
        if b"startup complete" in line:
            break


class _Rows:
    def __len__(self) -> int:
        return 8

    def __getitem__(self, row: int) -> int:
        return row


class _LengthSampler:
    """Sorts rows by their length, which a server knows."""

    def __init__(self, rows: Sized, port: int) -> None:
        self.rows, self.port = rows, port

    def __iter__(self) -> Iterator[int]:
        with socket.create_connection(("127.0.0.1", self.port)) as server:
            server.sendall(b"GET /lengths HTTP/1.1\r\nHost: data\r\n\r\n")
            server.recv(65536)
        return iter(range(len(self.rows)))


@fault("a sampler asks a server that is silent", "dataload-blocked", phase="rollout",
       needs=http_server, states=MAY_ANSWER)  # fmt: skip
def next_batch(scene: Scene) -> None:
    from torch.utils.data import DataLoader

    rows: Any = _Rows()
    sampler: Any = _LengthSampler(rows, scene.facts["port"])
    scene.takes_effect()
    next(iter(DataLoader(rows, batch_size=4, sampler=sampler)))


@fault("rows read from a decompressor that is stopped", "child-stuck", "dataload-blocked",
       phase="rollout")  # fmt: skip
def read_rows(scene: Scene) -> None:
    unpack = subprocess.Popen(["gzip", "-dc"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert unpack.stdout is not None
    os.kill(unpack.pid, signal.SIGSTOP)
    scene.takes_effect()
    unpack.stdout.readline()


class _LockedRows(_Rows):
    """Rows behind a cache that one process of the host may fill at a time."""

    def __init__(self, lock: Path) -> None:
        self.lock = lock

    def __getitem__(self, row: int) -> int:
        with self.lock.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
        return row


@fault("a loader's worker wants a lock of a rank that waits for its rank", "lock-held",
       "dataload-blocked", phase="rollout", everyone=True,
       guilty=lambda culprit, world: frozenset({culprit, (culprit + 1) % world}))  # fmt: skip
def load_behind_lock(scene: Scene) -> None:
    from torch.utils.data import DataLoader

    path = scene.folder / "rows.lock"
    if scene.rank == scene.partner:
        lock = path.open("w")
        fcntl.flock(lock, fcntl.LOCK_EX)
        scene.trainer.lock = lock  # given back after the step
        (scene.folder / "locked").touch()
    elif scene.guilty:
        eventually("the partner has the lock", (scene.folder / "locked").exists)
        rows: Any = _LockedRows(path)
        scene.takes_effect()
        next(iter(DataLoader(rows, batch_size=4, num_workers=1)))
