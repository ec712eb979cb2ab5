"""Held out: few ranks, and a culprit behind others or behind something that should help.

Two or three ranks, so that there is often no majority to go by.
"""

from __future__ import annotations

import fcntl
import importlib
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.faults import reward_server
from tests.faults.host import Unavailable, eventually, http_server, silent_fuse
from tests.faults.registry import FAULTS, MAY_ANSWER, Outside, Scene, fault

HOUR_S = 3600
ASKS = ("stuck", "slow")
BUSY = ("stuck", "slow")


def _ask(port: int) -> bytes:
    import http.client

    client = http.client.HTTPConnection("127.0.0.1", port)
    client.request("POST", "/score", b"{}")
    return client.getresponse().read()


@fault("an evaluation over a data set without end", "user-code-busy", phase="update",
       world_size=2, states=BUSY, busy=True)  # fmt: skip
def evaluate(scene: Scene) -> None:
    import itertools

    import torch

    scene.takes_effect()
    correct = 0
    for row in itertools.count():
        logits = torch.full((64, 96), float(row % 7)) @ scene.trainer.weights
        correct += int((logits.argmax(-1) == 0).sum())


@fault("a future asked again and again, its thread is silent", "reward-blocked", phase="reward",
       world_size=2, states=ASKS, needs=http_server)  # fmt: skip
def score_in_background(scene: Scene) -> None:
    with ThreadPoolExecutor(1) as pool:
        score = pool.submit(_ask, scene.facts["port"])
        scene.takes_effect()
        while not score.done():
            time.sleep(0.5)


@fault("the next stage receives from one that sleeps", "user-code-blocked",
       phase="compute_logprobs", world_size=3, everyone=True)  # fmt: skip
def run_stages(scene: Scene) -> None:
    import torch
    import torch.distributed as dist

    if scene.guilty:
        scene.takes_effect()
        time.sleep(HOUR_S)
        dist.send(torch.ones(8), dst=scene.partner)
    elif scene.rank == scene.partner:
        dist.recv(torch.zeros(8), src=scene.culprit)


@fault("a rank waits in a pair's group, its partner for a server", "user-code-blocked",
       phase="compute_logprobs", everyone=True, needs=http_server, states=MAY_ANSWER)  # fmt: skip
def share_tensor_parallel(scene: Scene) -> None:
    import torch
    import torch.distributed as dist

    pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    if scene.guilty:
        scene.takes_effect()
        _ask(scene.facts["port"])
    dist.all_reduce(torch.ones(16), group=pairs[scene.rank // 2])


@fault("samples pushed by ZMQ, and nobody pulls", "user-code-blocked", phase="update",
       world_size=3, modules=("zmq",))  # fmt: skip
def push_samples(scene: Scene) -> None:
    zmq: Any = importlib.import_module("zmq")

    socket = zmq.Context().socket(zmq.PUSH)
    socket.bind(f"ipc://{scene.folder}/samples")
    scene.takes_effect()
    socket.send(b"sample")


def trace(outside: Outside) -> None:
    """What somebody wrote who wanted to know what the rank does, and whose terminal is stopped."""
    if shutil.which("strace") is None:
        raise Unavailable("needs the program strace")
    tracer = subprocess.Popen(["strace", "-p", str(outside.pid)], stderr=subprocess.PIPE)
    outside.undo.callback(tracer.wait)
    outside.undo.callback(tracer.kill)
    stat = Path(f"/proc/{outside.pid}/stat")
    eventually("a full pipe stops it", lambda: stat.read_text().rpartition(")")[2].split()[0] == "t"
               and _unchanged(stat))  # fmt: skip


def _unchanged(stat: Path, for_s: float = 1.0) -> bool:
    before = stat.read_text()
    time.sleep(for_s)
    return before == stat.read_text()


@fault("strace whose output nobody reads", "rank-stopped", phase="update", world_size=3,
       outside=trace)  # fmt: skip
def be_traced(scene: Scene) -> None:
    scene.arrived()
    until = time.monotonic() + 20
    while time.monotonic() < until:
        os.getppid()


def _take(lock: Any, taken: Any) -> None:
    lock.acquire()
    taken.set()
    time.sleep(HOUR_S)


@fault("a manager's lock whose owner was killed", "lock-held", "child-stuck", phase="rollout",
       world_size=3)  # fmt: skip
def use_managed_cache(scene: Scene) -> None:
    context = multiprocessing.get_context("fork")
    manager = context.Manager()
    lock, taken = manager.Lock(), context.Event()
    owner = context.Process(target=_take, args=(lock, taken), daemon=True)
    owner.start()
    taken.wait()
    owner.kill()
    owner.join()
    scene.takes_effect()
    with lock:
        pass


class _CompilationError(Exception):
    """Cannot be unpickled: `Exception` keeps one argument, `__init__` wants two."""

    def __init__(self, line: int, text: str) -> None:
        super().__init__(text)
        self.line = line


def _compile(program: str) -> float:
    if not program:
        raise _CompilationError(1, "empty")
    return 1.0


@fault("a worker's exception that cannot be unpickled", "child-stuck", "reward-blocked",
       phase="reward", world_size=2)  # fmt: skip
def compile_in_a_pool(scene: Scene) -> None:
    with multiprocessing.get_context("fork").Pool(2) as pool:
        scene.takes_effect()
        pool.map(_compile, ["int main() {}", ""], chunksize=1)


@fault("a file lock before the rank joins", "lock-held", phase="rollout", world_size=3,
       before_init=True)  # fmt: skip
def choose_device(scene: Scene) -> None:
    path = scene.folder / "devices.lock"
    if os.fork() == 0:
        with path.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            (scene.folder / "locked").touch()
            signal.pause()
    eventually("the lock is taken", (scene.folder / "locked").exists)
    with path.open("w") as lock:
        scene.takes_effect()
        fcntl.flock(lock, fcntl.LOCK_EX)


@fault("a configuration on a hung mount, before the rank joins", "storage-blocked",
       phase="rollout", world_size=2, before_init=True, needs=silent_fuse)  # fmt: skip
def read_configuration(scene: Scene) -> None:
    scene.takes_effect()
    Path(scene.facts["disk"], "config.yaml").read_text()


@fault("two ranks have the same number", "rank-missing", phase="rollout", world_size=3,
       before_init=True)  # fmt: skip
def read_number(scene: Scene) -> None:
    os.environ["RANK"] = str(scene.partner)
    scene.takes_effect()


@fault("a stopped server in front of the judge", "reward-blocked", "child-stuck", phase="reward",
       world_size=2)  # fmt: skip
def ask_by_tunnel(scene: Scene) -> None:
    """The rank's own tunnel takes the connection; who would answer is stopped."""
    command = [sys.executable, "-S", str(reward_server.__file__), "0"]
    judge = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert judge.stdout is not None
    port = int(judge.stdout.readline())
    code = (
        "import socket, sys\n"
        "ours = socket.create_server(('127.0.0.1', 0))\n"
        "print(ours.getsockname()[1], flush=True)\n"
        "client, _ = ours.accept()\n"
        "judge = socket.create_connection(('127.0.0.1', int(sys.argv[1])))\n"
        "judge.sendall(client.recv(65536))\n"
        "client.sendall(judge.recv(65536))\n"
    )
    tunnel = subprocess.Popen([sys.executable, "-S", "-c", code, str(port)], stdout=subprocess.PIPE)
    assert tunnel.stdout is not None
    entrance = int(tunnel.stdout.readline())
    os.kill(judge.pid, signal.SIGSTOP)
    scene.takes_effect()
    _ask(entrance)


for _way in (
    "the next stage receives from one that sleeps",
    "a worker's exception that cannot be unpickled",
    "a manager's lock whose owner was killed",
    "a file lock before the rank joins",
):
    _name = f"torchrun, unasked: {_way}"
    FAULTS[_name] = replace(FAULTS[_way], name=_name, launch="torchrun", no_arguments=True)
