"""Ranks that part ways at a place that looks harmless: a checkpoint, the end of an epoch, a log.

Like all families whose name begins with *unforeseen*, it was written from reports of hung jobs by
somebody who did not know how `attach` reasons, with its labels, before `attach` saw any of it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tests.faults.registry import Scene, fault

if TYPE_CHECKING:
    from tests.faults.grpo import Trainer

# A rank that is in another collective than its peers has left theirs out, or calls one too many.
DEVIATES = ("collective-skipped", "collective-mismatch")
# The same over two groups, where it may also be that it calls theirs afterwards.
CROSSED = ("collective-skipped", "group-order-cycle")


def _trainer(scene: Scene) -> Trainer:
    trainer: Trainer = scene.trainer
    return trainer


def all_ranks(_culprit: int, world_size: int) -> frozenset[int]:
    return frozenset(range(world_size))


@fault("a checkpoint that one rank does not see", *DEVIATES, phase="rollout", everyone=True)
def resume(scene: Scene) -> None:
    """Each rank asks a network file system whose caches differ whether there is a checkpoint."""
    import torch.distributed as dist

    if scene.guilty:
        scene.takes_effect()
    else:
        state = [{"step": 20}]
        dist.broadcast_object_list(state, src=scene.partner)


@fault("objects gathered in one branch, a barrier in the other", "collective-mismatch",
       phase="reward", everyone=True)  # fmt: skip
def log_samples(scene: Scene) -> None:
    import torch.distributed as dist

    samples = [] if scene.guilty else ["42"]
    if samples:
        dist.all_gather_object([None] * scene.world_size, samples)
    else:
        scene.takes_effect()
        dist.barrier()


@fault("a monitored barrier that one rank never calls", *DEVIATES, phase="update", everyone=True)
def wait_for_all(scene: Scene) -> None:
    import torch.distributed as dist

    if scene.guilty:
        scene.takes_effect()
    else:
        dist.monitored_barrier()


@fault("a group that one rank does not create", "collective-skipped", phase="sync_weights",
       everyone=True)  # fmt: skip
def prepare_transfer(scene: Scene) -> None:
    import torch.distributed as dist

    if scene.guilty:
        scene.takes_effect()
    else:
        dist.new_group()


@fault("no tokens for the experts of one rank", *CROSSED, phase="update", everyone=True,
       world_size=8)  # fmt: skip
def route_tokens(scene: Scene) -> None:
    """Two expert-parallel groups of four; a rank without tokens leaves out the exchange."""
    import torch
    import torch.distributed as dist

    groups = [dist.new_group([0, 1, 2, 3]), dist.new_group([4, 5, 6, 7])]
    if scene.guilty:
        scene.takes_effect()
    else:
        tokens = torch.ones(64)
        dist.all_to_all_single(torch.empty_like(tokens), tokens, group=groups[scene.rank // 4])


@fault("one optimizer step more at the end of the epoch", *DEVIATES, phase="sync_weights",
       everyone=True)  # fmt: skip
def end_epoch(scene: Scene) -> None:
    import torch
    import torch.distributed as dist

    batches = 9 if scene.guilty else 8
    for batch in range(batches):
        if batch == 8:
            scene.takes_effect()
        dist.all_reduce(torch.ones(96, 96))
    dist.barrier()


@fault("rank 0 saves and waits at a barrier, 2 ranks", *DEVIATES, phase="update", world_size=2,
       fixed_culprit=0, guilty=all_ranks)  # fmt: skip
def save_on_main(scene: Scene) -> None:
    """With two ranks nobody is odd: it is the barrier of one or the missing call of the other."""
    import torch
    import torch.distributed as dist

    torch.save({"weights": _trainer(scene).weights}, scene.folder / "checkpoint.pt")
    scene.takes_effect()
    dist.barrier()


@fault("a bad batch is caught and skipped", *DEVIATES, phase="reward")
def check_batch(scene: Scene) -> None:
    from tests.faults.grpo import BadBatch

    scene.takes_effect()
    raise BadBatch("loss is NaN")


@fault("an exception with a barrier in finally", *DEVIATES, phase="update")
def clip_gradients(scene: Scene) -> None:
    import torch.distributed as dist

    try:
        scene.takes_effect()
        raise FloatingPointError("gradient norm is inf")
    finally:
        dist.barrier()


@fault("generation that ends early on one rank", *DEVIATES, phase="rollout", everyone=True)
def generate_together(scene: Scene) -> None:
    """Sharded weights need every rank in each token's forward pass, also one that has finished."""
    import torch
    import torch.distributed as dist

    for token in range(12):
        if scene.guilty and token == 5:
            scene.takes_effect()
            break
        dist.all_reduce(torch.ones(1))


@fault("early stopping decided by one rank", *DEVIATES, phase="rollout", launch="torchrun",
       no_arguments=True)  # fmt: skip
def stop_early(scene: Scene) -> None:
    import torch.distributed as dist

    scene.takes_effect()
    dist.barrier()
    os._exit(0)


@fault("a pipeline where everybody receives first", "p2p-unmatched", phase="update", everyone=True,
       guilty=all_ranks)  # fmt: skip
def run_pipeline(scene: Scene) -> None:
    import torch
    import torch.distributed as dist

    scene.takes_effect()
    activations = torch.empty(64)
    dist.recv(activations, src=(scene.rank - 1) % scene.world_size)
    dist.send(activations, dst=(scene.rank + 1) % scene.world_size)


@fault("rows first or columns first", "group-order-cycle", phase="update", everyone=True,
       guilty=all_ranks)  # fmt: skip
def reduce_over_the_grid(scene: Scene) -> None:
    """Two by two ranks; the diagonal reduces over its row first, the others over their column."""
    import torch
    import torch.distributed as dist

    rows = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    columns = [dist.new_group([0, 2]), dist.new_group([1, 3])]
    row, column = divmod(scene.rank, 2)
    groups = [rows[row], columns[column]]
    scene.takes_effect()
    for group in groups if row == column else reversed(groups):
        dist.all_reduce(torch.ones(8), group=group)
