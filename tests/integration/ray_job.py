"""A job as verl's: a driver, policy actors in one gloo group, and one that generates. Needs Ray.

train_ray.py FAULT FOLDER RANKS    touches FOLDER/RANK when the fault is due
"""

from __future__ import annotations

import asyncio
import datetime
import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

import ray  # type: ignore[import-not-found, unused-ignore]
import torch
import torch.distributed as dist

FAULT, FOLDER, RANKS = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
GUILTY, DUE = 1, 12
REPEAT = 3  # collectives of a step
STOPPED = 10_000


def due(step: int, *faults: str) -> bool:
    """Whether one of these faults, of a process that is no rank, happens now."""
    now = step == DUE and FAULT in faults
    for rank in range(RANKS if now else 0):
        (FOLDER / str(rank)).touch()
    return now


class PolicyWorker:
    """A rank, which learns its number only when it is asked to join."""

    def join(self, rank: int, port: int) -> None:
        torch.set_num_threads(1)
        self.rank = rank
        os.environ.update(
            RANK=str(rank), WORLD_SIZE=str(RANKS), LOCAL_RANK=str(rank),
            MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
        )  # fmt: skip
        dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=900))

    def update_policy(self, step: int) -> None:
        if step == DUE and FAULT.startswith("rank"):
            (FOLDER / str(self.rank)).touch()
            if self.rank == GUILTY and FAULT == "rank skips":
                return
            if self.rank == GUILTY:
                self.stop_getting_on()
        for _ in range(REPEAT):
            dist.all_reduce(torch.ones(1000))

    def stop_getting_on(self) -> None:
        if FAULT == "rank sleeps":
            time.sleep(STOPPED)
        if FAULT == "rank stopped":
            os.kill(os.getpid(), signal.SIGSTOP)
        if FAULT == "rank asks":
            ray.get(never_begun())


class RolloutActor:
    def generate(self, step: int) -> list[int]:
        if due(step, "rollout sleeps"):
            time.sleep(STOPPED)
        if step >= DUE and FAULT == "healthy":
            due(DUE, "healthy")
            self.decode(seconds=60.0)
        return [step]

    def decode(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            sum(n * n for n in range(10_000))
            time.sleep(0.01)


class RewardActor:
    """Scores in a thread of its event loop's pool, or in a coroutine, as verl's workers do."""

    async def score(self, step: int) -> float:
        if due(step, "reward awaits"):
            await asyncio.get_running_loop().create_future()
        return await asyncio.get_running_loop().run_in_executor(None, self.judge, step)

    def judge(self, step: int) -> float:
        if due(step, "reward sleeps"):
            time.sleep(STOPPED)
        return float(step)


def nothing() -> None:
    pass


def never_begun() -> Any:
    """The answer of a task for which the cluster never has what it needs."""
    return ray.remote(nothing).options(resources={"missing": 1}).remote()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def main() -> None:
    if os.environ.get("JOINS_CLUSTER"):
        ray.init(address="auto")
    else:
        ray.init(num_cpus=RANKS + 3, include_dashboard=False, _temp_dir=os.environ["RAY_FOLDER"])
    workers = [ray.remote(PolicyWorker).remote() for _ in range(RANKS)]
    rollout, spare = (ray.remote(RolloutActor).remote() for _ in range(2))
    reward = ray.remote(RewardActor).remote()
    ray.get(spare.generate.remote(0))  # has nothing to do from then on
    port = free_port()
    ray.get([worker.join.remote(rank, port) for rank, worker in enumerate(workers)])
    for step in range(1_000_000):
        ray.get(rollout.generate.remote(step))
        ray.get(reward.score.remote(step))
        if due(step, "driver sleeps"):
            time.sleep(STOPPED)
        if due(step, "driver asks"):
            ray.get(never_begun())
        ray.get([worker.update_policy.remote(step) for worker in workers])


if __name__ == "__main__":
    main()
