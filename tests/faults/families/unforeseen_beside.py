"""Waits beside which something else of the rank goes on: threads that work, loops that look again.

Held out: written by someone who had not read the causes, labelled before the first attach.
"""

from __future__ import annotations

import asyncio
import queue
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from multiprocessing.shared_memory import SharedMemory

from tests.faults.families.unforeseen_waiting import address, server
from tests.faults.host import http_server
from tests.faults.registry import MAY_ANSWER, Scene, fault

HOUR_S = 3600
POLLS = ("stuck", "slow")  # a loop that looks again may find something the next time
ENGINE = ("rollout-engine-stalled", "user-code-blocked")


def _beside(work: Callable[[], object], every_s: float, name: str) -> None:
    """A thread that does this again and again."""

    def repeat() -> None:
        while True:
            work()
            time.sleep(every_s)

    threading.Thread(target=repeat, name=name, daemon=True).start()


@fault("judge silent, a monitor thread measures on", "reward-blocked", phase="reward",
       needs=server("generates"), states=MAY_ANSWER)  # fmt: skip
def score_while_monitored(scene: Scene) -> None:
    log = (scene.folder / "monitor.jsonl").open("a")

    def measure() -> None:
        log.write(f'{{"load": {sum(range(20_000))}}}\n')
        log.flush()

    _beside(measure, 0.05, "monitor")
    scene.takes_effect()
    urllib.request.urlopen(address(scene, "score"), data=b"{}").read()


@fault("sleep in the update, a child works on", "user-code-blocked", phase="update", busy=True)
def wait_beside_a_child(scene: Scene) -> None:
    subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"])
    scene.takes_effect()
    time.sleep(HOUR_S)


@fault("a progress bar ticks while the rollout waits", "user-code-blocked", phase="rollout",
       world_size=8)  # fmt: skip
def generate_with_progress(scene: Scene) -> None:
    def tick() -> None:
        sys.stdout.write("rollout: 0/64\r")
        sys.stdout.flush()

    _beside(tick, 0.2, "progress")
    scene.takes_effect()
    threading.Event().wait()


@fault("an event loop with a heartbeat and a lost answer", "reward-blocked", phase="reward",
       states=POLLS)  # fmt: skip
def score_with_heartbeat(scene: Scene) -> None:
    async def beat() -> None:
        while True:
            await asyncio.sleep(0.3)

    async def score() -> None:
        await asyncio.gather(beat(), asyncio.get_running_loop().create_future())

    scene.takes_effect()
    asyncio.run(score())


@fault("a replay buffer asked every second, its producer died", "user-code-blocked",
       phase="rollout", states=POLLS)  # fmt: skip
def sample_buffer(scene: Scene) -> None:
    buffer: queue.Queue[str] = queue.Queue()
    producer = threading.Thread(target=lambda: None, name="producer")
    producer.start()
    producer.join()
    scene.takes_effect()
    while True:
        try:
            buffer.get(timeout=1.0)
        except queue.Empty:
            sys.stdout.write("waiting for samples\n")
            sys.stdout.flush()


@fault("a flag in shared memory, looked at without a pause", "user-code-busy", "user-code-blocked",
       phase="update", states=POLLS, busy=True)  # fmt: skip
def spin_on_flag(scene: Scene) -> None:
    flag = SharedMemory(create=True, size=1)
    flag.unlink()
    scene.takes_effect()
    while flag.buf is not None and not flag.buf[0]:
        pass


@fault("a flag looked at a thousand times a second", "user-code-blocked", phase="update",
       states=POLLS, world_size=2)  # fmt: skip
def poll_flag(scene: Scene) -> None:
    ready = threading.Event()
    scene.takes_effect()
    while not ready.is_set():
        time.sleep(0.001)


@fault("a judge that only sends signs of life", "reward-blocked", phase="reward", states=POLLS,
       needs=server("signs"))  # fmt: skip
def read_events(scene: Scene) -> None:
    scene.takes_effect()
    with urllib.request.urlopen(address(scene, "score"), data=b"{}") as events:
        for line in events:
            if line.startswith(b"data"):
                return


@fault("one of two engines does not answer", *ENGINE, phase="rollout", needs=server("generates"),
       world_size=8, states=MAY_ANSWER)  # fmt: skip
def generate_on_two(scene: Scene) -> None:
    from concurrent.futures import ThreadPoolExecutor

    def generate(path: str) -> bytes:
        data = None if path == "health" else b"{}"
        with urllib.request.urlopen(address(scene, path), data=data) as answer:
            body: bytes = answer.read()
        return body

    with ThreadPoolExecutor(2, "engine-client") as pool:
        scene.takes_effect()
        list(pool.map(generate, ["health", "generate"]))


@fault("a request with a time limit, made again and again", "reward-blocked", phase="reward",
       states=POLLS, needs=http_server)  # fmt: skip
def ask_with_time_limit(scene: Scene) -> None:
    scene.takes_effect()
    while True:
        try:
            urllib.request.urlopen(address(scene, "score"), data=b"{}", timeout=2)
        except OSError:
            continue
