"""Held out: ranks that part from each other, as users of trainers have reported it.

Each function is the few lines of a user's or a framework's code in which it happened.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from typing import TYPE_CHECKING, Any

from tests.faults.host import http_server
from tests.faults.registry import MAY_ANSWER, Outside, Scene, fault

if TYPE_CHECKING:
    import torch

HOUR_S = 3600
DEVIATES = ("collective-skipped", "collective-mismatch")
# Who waits in another group than the others has left theirs out or comes to it afterwards.
CROSSED = (*DEVIATES, "group-order-cycle")
ASKS = ("stuck", "slow")  # who asks, sleeps and asks again is slow for the first minute


def with_next(culprit: int, world_size: int) -> frozenset[int]:
    """Both ends of what is between the culprit and the rank after it."""
    return frozenset({culprit, (culprit + 1) % world_size})


@fault("a metric that one rank alone has", *DEVIATES, phase="reward", everyone=True)
def log_metrics(scene: Scene) -> None:
    import torch
    import torch.distributed as dist

    metrics = {"length": 1.0, "accuracy": 0.5} | ({"format": 1.0} if scene.guilty else {})
    scene.takes_effect()
    for name in sorted(metrics):
        dist.all_reduce(torch.tensor([metrics[name]]))
    dist.barrier()


@fault("buckets reduced in the background, one too few", *DEVIATES, phase="compute_logprobs",
       everyone=True)  # fmt: skip
def reduce_in_background(scene: Scene) -> None:
    import torch
    import torch.distributed as dist

    buckets = [torch.ones(64) for _ in range(3 if scene.guilty else 4)]
    scene.takes_effect()
    works = [dist.all_reduce(bucket, async_op=True) for bucket in buckets]
    for work in works:
        work.wait()


@fault("full_tensor() for the main process only", *CROSSED, phase="sync_weights", everyone=True,
       fixed_culprit=0)  # fmt: skip
def collect_sharded_weights(scene: Scene) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (scene.world_size,))
    sharded = distribute_tensor(scene.trainer.weights.clone(), mesh, [Shard(0)])
    scene.takes_effect()
    if scene.rank == 0:
        scene.trainer.weights = sharded.full_tensor()


@fault("a barrier of the world instead of the node's", *CROSSED, phase="update", everyone=True)
def wait_for_node(scene: Scene) -> None:
    import torch.distributed as dist

    nodes = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    scene.takes_effect()
    dist.barrier(None if scene.guilty else nodes[scene.rank // 2])


@fault("a ring with a wrong neighbour", "p2p-unmatched", phase="compute_logprobs", everyone=True,
       guilty=with_next)  # fmt: skip
def pass_keys_on(scene: Scene) -> None:
    import torch
    import torch.distributed as dist

    size = scene.world_size
    after = (scene.rank + (2 if scene.guilty else 1)) % size
    before = (scene.rank - 1) % size
    scene.takes_effect()
    works = dist.batch_isend_irecv(
        [
            dist.P2POp(dist.isend, torch.ones(8), after),
            dist.P2POp(dist.irecv, torch.zeros(8), before),
        ]
    )
    for work in works:
        work.wait()


@fault("a message from anybody that nobody sends", "p2p-unmatched", phase="rollout")
def wait_for_actor(scene: Scene) -> None:
    import torch
    import torch.distributed as dist

    scene.takes_effect()
    dist.recv(torch.zeros(1))


@fault("samples gathered to another rank", "collective-mismatch", phase="reward", everyone=True,
       fixed_culprit=2, guilty=lambda culprit, _world: frozenset({0, culprit}))  # fmt: skip
def gather_samples(scene: Scene) -> None:
    import torch.distributed as dist

    target = scene.rank if scene.guilty else 0
    samples: list[Any] | None = [None] * scene.world_size if scene.rank == target else None
    scene.takes_effect()
    dist.gather_object({"text": "yes"}, samples, dst=target)


@fault("a barrier made of a counter in the store", "collective-skipped", "user-code-blocked",
       phase="update", everyone=True, states=ASKS)  # fmt: skip
def wait_by_counter(scene: Scene) -> None:
    from torch.distributed.distributed_c10d import _get_default_store

    store = _get_default_store()
    scene.takes_effect()
    if scene.guilty:  # has returned early, before it was counted
        return
    store.add("arrived", 1)
    while store.add("arrived", 0) < scene.world_size:
        time.sleep(0.2)


def preempt(outside: Outside) -> None:
    os.kill(outside.pid, signal.SIGUSR1)


@fault("a signal of the batch system reaches one rank, which calls a barrier", *DEVIATES,
       phase="rollout", outside=preempt)  # fmt: skip
def save_when_preempted(scene: Scene) -> None:
    import torch.distributed as dist

    saved = []

    def save_together(*_: object) -> None:
        dist.barrier()
        saved.append(True)

    signal.signal(signal.SIGUSR1, save_together)
    scene.arrived()
    while not saved:
        time.sleep(0.01)


@fault("a collective in a backward pass that one loss does not need", *DEVIATES, phase="update",
       everyone=True)  # fmt: skip
def backward_with_contrast(scene: Scene) -> None:
    import torch
    import torch.distributed as dist

    class Gathered(torch.autograd.Function):
        @staticmethod
        def forward(_ctx: Any, own: torch.Tensor) -> torch.Tensor:
            return own * 2

        @staticmethod
        def backward(_ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            parts = [torch.zeros_like(gradient) for _ in range(scene.world_size)]
            dist.all_gather(parts, gradient.contiguous())
            return parts[scene.rank]

    own = torch.ones(8, requires_grad=True)
    loss = own.sum() if scene.guilty else Gathered.apply(own).sum()  # type: ignore[no-untyped-call]
    scene.takes_effect()
    loss.backward()


@fault("a distributed checkpoint saved by the main process only", *DEVIATES, phase="update",
       fixed_culprit=0)  # fmt: skip
def save_distributed(scene: Scene) -> None:
    from torch.distributed.checkpoint.state_dict_saver import save

    scene.takes_effect()
    save({"weights": scene.trainer.weights}, checkpoint_id=scene.folder / "checkpoint")


@fault("two ranks wait for each other's files", "user-code-blocked", phase="rollout",
       everyone=True, guilty=with_next, states=ASKS)  # fmt: skip
def swap_shards(scene: Scene) -> None:
    pair = {scene.culprit: scene.partner, scene.partner: scene.culprit}
    if scene.rank not in pair:
        return
    scene.takes_effect()
    while not (scene.folder / f"shard{pair[scene.rank]}").exists():
        time.sleep(0.1)
    (scene.folder / f"shard{scene.rank}").touch()


_kept_open: list[socket.socket] = []


@fault("a rank asks another that is in a collective", "user-code-blocked", phase="rollout",
       everyone=True, guilty=with_next)  # fmt: skip
def fetch_experience(scene: Scene) -> None:
    address = str(scene.folder / "experience")
    if scene.rank == scene.partner:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(address)
        listener.listen()
        _kept_open.append(listener.accept()[0])  # is answered after the step
    elif scene.guilty:
        with socket.socket(socket.AF_UNIX) as owner:
            while owner.connect_ex(address):
                time.sleep(0.01)
            owner.sendall(b"get 17\n")
            scene.takes_effect()
            owner.recv(1)


@fault("the others look for a file that rank 0 is to download", "user-code-blocked",
       phase="compute_logprobs", everyone=True, fixed_culprit=0, needs=http_server,
       states=MAY_ANSWER)  # fmt: skip
def download_reference(scene: Scene) -> None:
    path = scene.folder / "reference.safetensors"
    if scene.rank:
        while not path.exists():
            time.sleep(0.5)
        return
    with socket.create_connection(("127.0.0.1", scene.facts["port"])) as hub:
        hub.sendall(b"GET /reference.safetensors HTTP/1.1\r\nHost: hub\r\n\r\n")
        scene.takes_effect()
        path.write_bytes(hub.recv(65536))


@fault("the others ask a barrier again and again whether it is done", "user-code-blocked",
       phase="update", everyone=True)  # fmt: skip
def overlap_barrier(scene: Scene) -> None:
    import torch.distributed as dist

    if scene.guilty:
        scene.takes_effect()
        time.sleep(HOUR_S)
    barrier = dist.barrier(async_op=True)
    while not barrier.is_completed():
        time.sleep(0.002)
