"""What a user's own code does: reward calls, child processes, files, endless work."""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import re
import signal
import socket
import subprocess
import sys
import time

from tests.faults.host import eventually, http_server
from tests.faults.registry import MAY_ANSWER, Scene, fault

HOUR_S = 3600
BUSY = ("stuck", "slow")  # work without end and long work look alike for a while


@fault("sleep in the reward", "reward-blocked", phase="reward")
def wait_for_judge(scene: Scene) -> None:
    scene.takes_effect()
    time.sleep(HOUR_S)


@fault("sleep in the update", "user-code-blocked", phase="update")
def wait_for_quota(scene: Scene) -> None:
    scene.takes_effect()
    time.sleep(HOUR_S)


@fault("reward server never answers", "reward-blocked", phase="reward", needs=http_server,
       states=MAY_ANSWER)  # fmt: skip
def call_reward_server(scene: Scene) -> None:
    with socket.create_connection(("127.0.0.1", scene.facts["port"])) as server:
        server.sendall(b"POST /reward HTTP/1.1\r\nHost: rewards\r\nContent-Length: 0\r\n\r\n")
        scene.takes_effect()
        server.recv(65536)


@fault(
    "reward server sends a byte now and then", "reward-blocked", phase="reward", states=BUSY,
    needs=lambda: http_server(every_s=2.0),
)  # fmt: skip
def read_slow_answer(scene: Scene) -> None:
    with socket.create_connection(("127.0.0.1", scene.facts["port"])) as server:
        server.sendall(b"POST /reward HTTP/1.1\r\nHost: rewards\r\nContent-Length: 0\r\n\r\n")
        scene.takes_effect()
        answer = b""
        while b"\r\n\r\n" not in answer:
            answer += server.recv(1)


@fault("weights sent to a silent server", "weight-sync-blocked", "rollout-engine-stalled",
       phase="sync_weights",
       needs=http_server, states=MAY_ANSWER)  # fmt: skip
def push_weights(scene: Scene) -> None:
    with socket.create_connection(("127.0.0.1", scene.facts["port"])) as server:
        server.sendall(
            b"POST /update_weights HTTP/1.1\r\nHost: engine\r\nContent-Length: 0\r\n\r\n"
        )
        scene.takes_effect()
        server.recv(65536)


@fault("reward server refuses, retried for ever", "reward-blocked", phase="reward", states=BUSY)
def retry_reward_server(scene: Scene) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        address = nobody.getsockname()
        scene.takes_effect()
        while True:
            try:
                socket.create_connection(address, timeout=1)
            except OSError:
                time.sleep(1)


@fault("reward child fills its output pipe", "child-stuck", "reward-blocked", phase="reward")
def run_unit_tests(scene: Scene) -> None:
    code = "import sys; sys.stdout.write('.' * 1000000)"
    child = subprocess.Popen([sys.executable, "-S", "-c", code], stdout=subprocess.PIPE)
    scene.takes_effect()
    child.wait()


@fault("a child that never ends", "child-stuck", "reward-blocked", phase="reward")
def run_in_sandbox(scene: Scene) -> None:
    scene.takes_effect()
    subprocess.run(["sleep", str(HOUR_S)], check=False)


@fault(
    "a grandchild keeps the sandbox's pipe open", "child-stuck", "reward-blocked", phase="reward"
)
def run_sandboxed_shell(scene: Scene) -> None:
    scene.takes_effect()
    subprocess.run(["sh", "-c", f"sleep {HOUR_S} & exit 0"], capture_output=True, check=False)


def _grade(seconds: float) -> float:
    time.sleep(seconds)
    return 1.0


@fault("a killed worker of a pool", "child-stuck", "reward-blocked", phase="reward")
def grade_in_a_pool(scene: Scene) -> None:
    pool = multiprocessing.get_context("fork").Pool(2)
    scores = pool.map_async(_grade, [HOUR_S, 0.0])
    worker = multiprocessing.active_children()[0].pid
    assert worker is not None
    os.kill(worker, signal.SIGKILL)
    scene.takes_effect()
    scores.get()


@fault("input() left in the code", "user-code-blocked", phase="update")
def debug_update(scene: Scene) -> None:
    read_end, write_end = os.pipe()
    scene.takes_effect()
    with os.fdopen(read_end) as terminal, os.fdopen(write_end, "w"):
        terminal.readline()


@fault("catastrophic regular expression", "reward-busy", phase="reward", states=BUSY, busy=True)
def match_answer(scene: Scene) -> None:
    scene.takes_effect()
    words = "the answer is forty two and not forty three is it not so "  # 2^57 ways to fail
    re.match(r"(\w+\s?)+$", words + "?")


@fault("endless arithmetic in the reward", "reward-busy", phase="reward", states=BUSY, busy=True)
def simplify_answer(scene: Scene) -> None:
    scene.takes_effect()
    number = 1
    while True:
        number = (number * 1103515245 + 12345) & 0xFFFFFFFF


@fault("endless loop in the update", "user-code-busy", phase="update", states=BUSY, busy=True)
def normalise_advantages(scene: Scene) -> None:
    scene.takes_effect()
    scale = 1.0
    while scale > 0:
        scale = (scale * 1.000001) % 10 + 1


@fault("flock held by another process", "lock-held", "storage-blocked", phase="rollout")
def lock_model_cache(scene: Scene) -> None:
    path = scene.folder / "model.lock"
    owner = os.fork()
    if owner == 0:
        with path.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            (scene.folder / "locked").touch()
            signal.pause()
    eventually("the lock is taken", (scene.folder / "locked").exists)
    with path.open("w") as lock:
        scene.takes_effect()
        fcntl.flock(lock, fcntl.LOCK_EX)


@fault("log pipe full, its reader is stopped", "user-code-blocked", "child-stuck", phase="update")
def log_gradients(scene: Scene) -> None:
    shipper = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    assert shipper.stdin is not None
    os.kill(shipper.pid, signal.SIGSTOP)
    scene.takes_effect()
    while True:
        os.write(shipper.stdin.fileno(), b"gradient norm 1.0\n" * 200)
