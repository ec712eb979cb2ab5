"""Held out: groups, stores and threads between ranks, as users have reported it."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from typing import TYPE_CHECKING, Any

from tests.faults.families.control import start_log_uploader
from tests.faults.families.engine import engine_elsewhere, generate, kill_core_elsewhere
from tests.faults.host import eventually, http_server
from tests.faults.registry import Outside, Scene, fault

if TYPE_CHECKING:
    from collections.abc import Callable

HOUR_S = 3600
DEVIATES = ("collective-skipped", "collective-mismatch")
CROSSED = (*DEVIATES, "group-order-cycle")
ASKS = ("stuck", "slow")
ENDED = ("stuck", "dead")


def everybody(_culprit: int, world_size: int) -> frozenset[int]:
    return frozenset(range(world_size))


def _store() -> Any:
    from torch.distributed.distributed_c10d import _get_default_store

    return _get_default_store()


@fault("a gather that one rank leaves out", *DEVIATES, phase="reward", everyone=True,
       fixed_culprit=2, guilty=lambda culprit, _world: frozenset({0, culprit}))  # fmt: skip
def gather_lengths(scene: Scene) -> None:
    """The target alone waits for the missing part; it is the other side of the same mistake."""
    import torch
    import torch.distributed as dist

    scene.takes_effect()
    if not scene.guilty:
        parts = [torch.zeros(1) for _ in range(scene.world_size)] if scene.rank == 0 else None
        dist.gather(torch.ones(1), parts, dst=0)


@fault("a scatter whose source leaves it out", *DEVIATES, phase="rollout", everyone=True,
       fixed_culprit=0, world_size=3)  # fmt: skip
def scatter_prompts(scene: Scene) -> None:
    import torch
    import torch.distributed as dist

    scene.takes_effect()
    if scene.rank:
        dist.scatter(torch.zeros(4), None, src=0)


@fault("a broadcast from another source", "collective-mismatch", phase="rollout", everyone=True,
       fixed_culprit=2)  # fmt: skip
def share_seed(scene: Scene) -> None:
    import torch
    import torch.distributed as dist

    scene.takes_effect()
    dist.broadcast(torch.ones(1), src=1 if scene.guilty else 0)
    dist.barrier()


def kill_core(outside: Outside) -> None:
    kill_core_elsewhere(outside)


@fault("the one engine of all ranks is dead", "rollout-engine-dead", phase="rollout",
       everyone=True, guilty=everybody, needs=engine_elsewhere, outside=kill_core, states=ENDED,
       world_size=3)  # fmt: skip
def generate_everywhere(scene: Scene) -> None:
    if scene.guilty:
        generate(scene.facts["port"])
        scene.arrived()
    eventually("the bench has acted", (scene.folder / "acted").exists)
    scene.takes_effect()
    generate(scene.facts["port"])


@fault("groups created in another order on one rank", *CROSSED, phase="sync_weights",
       everyone=True)  # fmt: skip
def create_groups(scene: Scene) -> None:
    import torch.distributed as dist

    members = [[0, 1, 2], [1, 2, 3], [0, 1, 2, 3]]
    scene.takes_effect()
    for group in reversed(members) if scene.guilty else members:
        dist.new_group(group)


@fault("two ranks send to each other first", "p2p-unmatched", phase="update", everyone=True,
       world_size=2, guilty=everybody)  # fmt: skip
def swap_halves(scene: Scene) -> None:
    import torch
    import torch.distributed as dist

    peer = 1 - scene.rank
    scene.takes_effect()
    dist.send(torch.ones(1 << 20), dst=peer)
    dist.recv(torch.ones(1 << 20), src=peer)


@fault("a message from a rank that has died", "rank-dead", phase="compute_logprobs",
       everyone=True, world_size=3, states=ENDED)  # fmt: skip
def receive_from_the_dead(scene: Scene) -> None:
    import torch
    import torch.distributed as dist

    if scene.guilty:
        start_log_uploader()
        scene.takes_effect()
        os.kill(os.getpid(), signal.SIGKILL)
    elif scene.rank == scene.partner:
        dist.recv(torch.zeros(8), src=scene.culprit)


@fault("the others wait for what a dead rank should put into the store", "rank-dead",
       phase="rollout", everyone=True, fixed_culprit=1, world_size=3, states=ENDED)  # fmt: skip
def read_plan(scene: Scene) -> None:
    if scene.guilty:
        start_log_uploader()
        scene.takes_effect()
        os.abort()
    _store().get("plan")


def stop_first(outside: Outside) -> None:
    os.kill(outside.pid, signal.SIGSTOP)
    (outside.folder / "acted").touch()


@fault("the rank that keeps the store is stopped", "rank-stopped", phase="rollout",
       everyone=True, fixed_culprit=0, world_size=3, outside=stop_first)  # fmt: skip
def ask_stopped_store(scene: Scene) -> None:
    if scene.guilty:
        scene.arrived()
    eventually("the bench has acted", (scene.folder / "acted").exists)
    _store().set(f"seen {scene.rank}", "1")
    _store().get("plan")


def _in_a_thread(work: Callable[[], object]) -> None:
    thread = threading.Thread(target=work, name="trainer")
    thread.start()
    thread.join()


@fault("collectives in a thread of each rank, one of them sleeps", "user-code-blocked",
       phase="update", everyone=True, world_size=3)  # fmt: skip
def step_in_a_thread(scene: Scene) -> None:
    import torch.distributed as dist

    def step() -> None:
        if scene.guilty:
            scene.takes_effect()
            time.sleep(HOUR_S)
        dist.barrier()

    _in_a_thread(step)


@fault("event loops with a heartbeat, one waits for a silent tool", "user-code-blocked",
        phase="rollout", everyone=True, world_size=3, states=ASKS,
       needs=http_server)  # fmt: skip
def play(scene: Scene) -> None:
    import torch.distributed as dist

    async def beat() -> None:
        while True:
            await asyncio.sleep(0.2)

    async def episode() -> None:
        heart = asyncio.create_task(beat())
        if scene.guilty:
            reader, writer = await asyncio.open_connection("127.0.0.1", scene.facts["port"])
            writer.write(b"POST /tool HTTP/1.1\r\nHost: tools\r\nContent-Length: 0\r\n\r\n")
            scene.takes_effect()
            await reader.read(1)
        await asyncio.to_thread(dist.barrier)
        heart.cancel()

    asyncio.run(episode())


@fault("a metrics thread reduces with the trainer's lock in its hand", *CROSSED, phase="update",
       everyone=True)  # fmt: skip
def log_under_lock(scene: Scene) -> None:
    """Its own trainer wants the lock; the threads of the others have nothing to report yet."""
    import torch
    import torch.distributed as dist

    metrics, lock, reduces = dist.new_group(), threading.Lock(), threading.Event()

    def report() -> None:
        with lock:
            reduces.set()
            dist.all_reduce(torch.ones(1), group=metrics)

    if scene.guilty:
        threading.Thread(target=report, name="metrics", daemon=True).start()
        reduces.wait()
        scene.takes_effect()
    with lock:
        scene.trainer.weights *= 1
