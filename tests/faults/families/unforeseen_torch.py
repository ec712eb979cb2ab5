"""Torch's own wrappers, launchers and stores, used a little differently on one rank."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.faults.events import count, wait_for
from tests.faults.families.control import start_log_uploader, stop_rank
from tests.faults.families.unforeseen_ranks import CROSSED, DEVIATES
from tests.faults.registry import Outside, Scene, fault

HOUR_S = 3600
START_S = 60.0
ENDED = ("stuck", "dead")
HERE = Path(__file__).parent


def _linear() -> Any:
    import torch

    torch.manual_seed(17)
    return torch.nn.Linear(64, 64)


def _mixed() -> Any:
    """A language model with a tower for pictures in front of it."""
    import torch

    class Mixed(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.vision, self.language = _linear(), _linear()

        def forward(self, tokens: Any, with_picture: bool) -> Any:
            return self.language(self.vision(tokens) if with_picture else tokens)

    return Mixed()


@fault("DDP: a batch without pictures on one rank", *CROSSED, phase="update", everyone=True)
def backward_with_unused_parameters(scene: Scene) -> None:
    """Its backward pass never makes the bucket of the unused tower ready, and says nothing."""
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    model = DistributedDataParallel(_mixed(), process_group=dist.new_group(), bucket_cap_mb=0.001)
    for batch in range(3):
        with_picture = batch < 2 or not scene.guilty
        if not with_picture:
            scene.takes_effect()
        model(torch.ones(4, 64), with_picture).sum().backward()


@fault("DDP: gradient accumulation ends elsewhere on one rank", *DEVIATES, phase="update",
       everyone=True)  # fmt: skip
def accumulate_gradients(scene: Scene) -> None:
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    model = DistributedDataParallel(_linear())
    model(torch.ones(4, 64)).sum().backward()
    if scene.guilty:
        scene.takes_effect()
        with model.no_sync():
            model(torch.ones(4, 64)).sum().backward()
    else:
        model(torch.ones(4, 64)).sum().backward()
    losses = [torch.zeros(1) for _ in range(scene.world_size)]
    dist.all_gather(losses, torch.ones(1))


@fault("DDP: one batch less on one rank, then an evaluation", *DEVIATES, phase="update",
       everyone=True, launch="torchrun", no_arguments=True)  # fmt: skip
def train_an_epoch(scene: Scene) -> None:
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    model = DistributedDataParallel(_linear())
    for _ in range(5 if scene.guilty else 6):
        model(torch.ones(4, 64)).sum().backward()
    if scene.guilty:
        scene.takes_effect()
    dist.all_gather_object([None] * scene.world_size, {"accuracy": 0.5})


@fault("FSDP: text on one rank, pictures on the others", *CROSSED, phase="update", everyone=True)
def forward_sharded(scene: Scene) -> None:
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import fully_shard

    mesh = DeviceMesh.from_group(dist.new_group(), "cpu")
    model = _mixed()
    for part in model.children():
        fully_shard(part, mesh=mesh)
    fully_shard(model, mesh=mesh)
    for batch in range(2):
        with_picture = batch == 0 or not scene.guilty
        if not with_picture:
            scene.takes_effect()
        model(torch.ones(4, 64), with_picture)


@fault("a key of the store that nobody sets", "user-code-blocked", phase="rollout")
def read_assignment(scene: Scene) -> None:
    import torch.distributed as dist

    store = dist.distributed_c10d._get_default_store()
    scene.takes_effect()
    store.get(f"shards/{scene.rank}")


@fault("the others read a key of the store that rank 0 sets too late", "user-code-blocked",
       "dataload-blocked", phase="rollout", everyone=True, fixed_culprit=0)  # fmt: skip
def prepare_dataset_once(scene: Scene) -> None:
    import torch.distributed as dist

    store = dist.distributed_c10d._get_default_store()
    if scene.guilty:
        scene.takes_effect()
        time.sleep(HOUR_S)
        store.set("dataset", "ready")
    else:
        store.get("dataset")


def kill_and_restart(outside: Outside) -> None:
    """What a watchdog script does that restarts a dead rank alone."""
    from tests.faults.rank import Spec

    os.kill(outside.pid, signal.SIGKILL)
    spec, size = outside.folder / "spec.json", len(outside.pids)
    spec.write_text(Spec(str(outside.folder), size, 0).to_json())
    variables = {
        "RANK": str(outside.culprit), "LOCAL_RANK": str(outside.culprit), "WORLD_SIZE": str(size),
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": (outside.folder / "port").read_text(),
        "PYTHONPATH": str(HERE.parents[2]),
    }  # fmt: skip
    with (outside.folder / "job.log").open("ab") as log:
        child = subprocess.Popen(
            [sys.executable, str(HERE.with_name("torchrun_rank.py")), str(spec)],
            cwd=outside.folder, stdout=log, stderr=log, env=os.environ | variables,
        )  # fmt: skip
    outside.undo.callback(child.wait)
    outside.undo.callback(child.kill)
    wait_for(outside.folder, lambda events: count(events, "started") > size, "restart", START_S)


@fault("a dead rank is started again, alone", "rank-dead", "rank-missing", phase="update",
       states=ENDED, outside=kill_and_restart, fixed_culprit=2)  # fmt: skip
def wait_to_be_restarted(scene: Scene) -> None:
    start_log_uploader()
    (scene.folder / "port").write_text(os.environ["MASTER_PORT"])
    scene.arrived()


@fault("mp.spawn: SIGSTOP", "rank-stopped", phase="update", outside=stop_rank, launch="spawn")
def wait_to_be_stopped(scene: Scene) -> None:
    scene.arrived()


@fault("mp.spawn: sleep in the reward", "reward-blocked", phase="reward", launch="spawn",
       no_arguments=True)  # fmt: skip
def wait_for_judge(scene: Scene) -> None:
    scene.takes_effect()
    time.sleep(HOUR_S)
