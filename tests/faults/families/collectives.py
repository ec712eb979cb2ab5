"""Ranks that call other collectives than their peers, in another order, or not at all.

Tensors of different sizes are missing: gloo ends the whole job for them, at once.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from tests.faults.registry import Scene, fault

if TYPE_CHECKING:
    from tests.faults.grpo import Trainer

DEVIATES = ("collective-mismatch", "collective-skipped")
# A rank that waits in another group than its peers may have left out their collective or call it
# afterwards: what has happened so far is the same, so both are right.
CROSSED = ("group-order-cycle", "collective-skipped")


def _trainer(scene: Scene) -> Trainer:
    trainer: Trainer = scene.trainer
    return trainer


@fault("another operation", "collective-mismatch", phase="reward")
def share_best_score(scene: Scene) -> None:
    import torch
    import torch.distributed as dist

    scene.takes_effect()
    dist.broadcast(torch.ones(1), src=scene.rank)


@fault("another operation, 8 ranks", "collective-mismatch", phase="update", world_size=8)
def gather_gradients(scene: Scene) -> None:
    import torch
    import torch.distributed as dist

    scene.takes_effect()
    dist.all_gather([torch.ones(64) for _ in range(scene.world_size)], torch.ones(64))


@fault("a collective skipped by a condition on the data", *DEVIATES, phase="compute_logprobs")
def skip_empty_batch(scene: Scene) -> bool:
    scene.takes_effect()
    return True


@fault("a collective skipped, 8 ranks", *DEVIATES, phase="rollout", world_size=8)
def skip_finished_rollout(scene: Scene) -> bool:
    scene.takes_effect()
    return True


@fault("an evaluation on one rank only", *DEVIATES, phase="compute_logprobs")
def evaluate(scene: Scene) -> None:
    import torch
    import torch.distributed as dist

    scene.takes_effect()
    accuracy = torch.tensor([0.5])
    dist.all_reduce(accuracy)


@fault("one micro-batch less", *CROSSED, phase="update")
def update_on_fewer_batches(scene: Scene) -> bool:
    import torch
    import torch.distributed as dist

    scene.takes_effect()
    width = len(_trainer(scene).weights)
    dist.all_reduce(torch.ones(width, width))
    return True


@fault("a barrier on all ranks but one", *DEVIATES, phase="update", everyone=True)
def save_checkpoint(scene: Scene) -> None:
    import torch.distributed as dist

    if scene.guilty:
        scene.takes_effect()
    else:
        dist.barrier()


@fault("two groups in swapped order", *CROSSED, phase="sync_weights")
def sync_weights_last(scene: Scene) -> bool:
    import torch.distributed as dist

    trainer = _trainer(scene)
    scene.takes_effect()
    norm = trainer.weights.norm()
    dist.all_reduce(norm)
    dist.broadcast(trainer.weights, src=0, group=trainer.transfer)
    return True


@fault(
    "weight sync: two threads, two groups, crossed", "group-order-cycle", "weight-sync-blocked",
    phase="sync_weights", everyone=True, guilty=lambda _culprit, world: frozenset(range(world)),
)  # fmt: skip
def stream_weights(scene: Scene) -> bool:
    """Even ranks gather before they send, odd ranks send before they gather; each waits for the
    other's second call, while a thread of each already waits in a third.
    """
    import torch
    import torch.distributed as dist

    trainer = _trainer(scene)
    scene.takes_effect()
    sent = threading.Event()

    def send() -> None:
        dist.broadcast(trainer.weights, src=0, group=trainer.transfer)
        sent.set()

    def gather() -> None:
        parts = [torch.zeros(1) for _ in range(scene.world_size)]
        dist.all_gather(parts, torch.ones(1))

    sender = threading.Thread(target=send, name="weight-sender", daemon=True)
    if scene.rank % 2:
        sender.start()
        sent.wait()
        gather()
    else:
        gather()
        sender.start()
        sent.wait()
    return True


@fault("two threads share a group", "collective-mismatch", phase="sync_weights", everyone=True)
def log_from_a_thread(scene: Scene) -> bool:
    """A metrics thread reduces over the trainer's own group; in one rank it comes first."""
    import torch
    import torch.distributed as dist

    def log_metrics() -> None:
        dist.all_gather([torch.zeros(3) for _ in range(scene.world_size)], torch.ones(3))

    metrics = threading.Thread(target=log_metrics, name="metrics", daemon=True)
    if scene.guilty:
        scene.takes_effect()
        metrics.start()
        metrics.join()
        dist.all_reduce(torch.ones(1))
    else:
        dist.all_reduce(torch.ones(1))
        metrics.start()
        metrics.join()
    return True


@fault(
    "a receive that nobody sends", "p2p-unmatched", phase="update",
    guilty=lambda culprit, world: frozenset({culprit, (culprit + 1) % world}),
)  # fmt: skip
def receive_activations(scene: Scene) -> None:
    import torch
    import torch.distributed as dist

    scene.takes_effect()
    dist.recv(torch.ones(64), src=scene.partner)


@fault(
    "a send with another tag", "p2p-unmatched", phase="update", everyone=True,
    guilty=lambda culprit, world: frozenset({culprit, (culprit + 1) % world}),
)  # fmt: skip
def exchange_activations(scene: Scene) -> None:
    import torch
    import torch.distributed as dist

    if scene.rank == scene.partner:
        dist.isend(torch.ones(64), dst=scene.culprit, tag=1)
    elif scene.guilty:
        scene.takes_effect()
        dist.recv(torch.ones(64), src=scene.partner, tag=2)
