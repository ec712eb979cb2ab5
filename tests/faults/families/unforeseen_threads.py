"""Threads and event loops of a rank that wait for what does not come, or do not end.

Held out: written by someone who had not read the causes, labelled before the first attach.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from tests.faults.host import http_server
from tests.faults.registry import Scene, fault

BUSY = ("stuck", "slow")  # nobody knows yet whether it ends


@fault("asyncio.gather over judges, one never answers", "reward-blocked", phase="reward")
def gather_scores(scene: Scene) -> None:
    async def ask_judge(number: int) -> float:
        await (asyncio.get_running_loop().create_future() if number == 5 else asyncio.sleep(0.01))
        return 1.0

    async def score() -> None:
        await asyncio.gather(*(ask_judge(number) for number in range(8)))

    scene.takes_effect()
    asyncio.run(score())


@fault("an event loop in a thread that is joined", "user-code-blocked", phase="rollout",
       world_size=3)  # fmt: skip
def run_episodes(scene: Scene) -> None:
    async def play() -> None:
        await asyncio.Event().wait()

    thread = threading.Thread(target=lambda: asyncio.run(play()), name="episodes")
    thread.start()
    scene.takes_effect()
    thread.join()


@fault(
    "a coroutine waited for on its own event loop", "user-code-blocked", "thread-deadlock",
    phase="rollout",
)  # fmt: skip
def call_tool(scene: Scene) -> None:
    async def tool() -> str:
        return "42"

    async def turn() -> str:
        loop = asyncio.get_running_loop()
        scene.takes_effect()
        return asyncio.run_coroutine_threadsafe(tool(), loop).result()

    asyncio.run(turn())


@fault(
    "a task that waits for its own thread pool", "reward-blocked", "thread-deadlock",
    phase="reward",
)  # fmt: skip
def grade_in_parts(scene: Scene) -> None:
    pool = ThreadPoolExecutor(1)

    def grade() -> float:
        return pool.submit(lambda: 1.0).result()

    scene.takes_effect()
    pool.submit(grade).result()


@fault("a condition that nobody notifies", "user-code-blocked", phase="compute_logprobs")
def wait_for_reference_model(scene: Scene) -> None:
    ready = threading.Condition()
    scene.takes_effect()
    with ready:
        ready.wait()


@fault("an event that a failed thread should set", "reward-blocked", phase="reward", world_size=8)
def wait_for_scorer(scene: Scene) -> None:
    scored = threading.Event()

    def score() -> None:
        raise KeyError("answer")

    threading.Thread(target=score, name="scorer").start()
    scene.takes_effect()
    scored.wait()


@fault("queue.join without task_done", "user-code-blocked", phase="rollout")
def drain_requests(scene: Scene) -> None:
    requests: queue.Queue[int] = queue.Queue()

    def work() -> None:
        while True:
            requests.get()

    threading.Thread(target=work, name="generator", daemon=True).start()
    requests.put(1)
    scene.takes_effect()
    requests.join()


@fault("a huge power, evaluated in C", "reward-busy", "gil-held", phase="reward", states=BUSY,
       busy=True)  # fmt: skip
def evaluate_answer(scene: Scene) -> None:
    def beat() -> None:
        while True:
            time.sleep(0.2)

    threading.Thread(target=beat, name="heartbeat", daemon=True).start()
    scene.takes_effect()
    eval("9**9**9")


@fault("a time limit that cannot end its thread", "reward-busy", phase="reward", states=BUSY,
       busy=True)  # fmt: skip
def verify_with_limit(scene: Scene) -> None:
    def simplify() -> None:
        terms = 1
        while terms:
            terms = (terms * 6364136223846793005 + 1) % (1 << 64) | 1

    scene.takes_effect()
    with contextlib.suppress(TimeoutError), ThreadPoolExecutor(1) as pool:
        pool.submit(simplify).result(timeout=0.5)  # and the end of the block waits for the thread


@fault("log handler on a socket that nobody reads", "user-code-blocked", phase="update",
       states=BUSY, needs=http_server, world_size=8)  # fmt: skip
def log_samples(scene: Scene) -> None:
    import logging.handlers

    logger = logging.getLogger("samples")
    logger.propagate = False
    logger.addHandler(logging.handlers.SocketHandler("127.0.0.1", scene.facts["port"]))
    scene.takes_effect()
    while True:
        logger.warning("completion %s", "token " * 20_000)
