"""The life of a rank: meets the others over a TCPStore, trains, and is struck when it is due."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tests.faults.events import tell

FOREVER = 10**9
HEALTHY_STEPS = 8


@dataclass(frozen=True)
class Spec:
    """One job. `step` is where the fault strikes; `proxies` is how many threads of NCCL's that
    talk to other hosts each rank has; `named`: whether torch names its
    threads.
    """

    folder: str
    libraries: str
    port: int
    case: str
    world_size: int = 3
    culprit: int = 0
    step: int = HEALTHY_STEPS
    proxies: int = 0
    named: bool = True

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Spec:
        return cls(**json.loads(text))

    @property
    def world(self) -> Path:
        """The file that stands for the devices."""
        return Path(self.folder, "devices")


def groups_of(size: int) -> list[list[int]]:
    """The world, and those of data, of tensors and of weights, in the order of their creation."""
    return [list(range(size)) for _ in range(4)]


def run_rank(spec: Spec, rank: int) -> None:
    """Until it is killed."""
    import torch.distributed as dist

    from tests.spinning import backend, script
    from tests.spinning.cases import CASES

    folder = Path(spec.folder)
    os.chdir(folder)
    device = backend.Device(Path(spec.libraries), spec.world, rank, spec.proxies, spec.named)
    backend.install(device)
    groups = groups_of(spec.world_size)
    if rank == 0:
        backend.members_of(device, groups)
    dist.init_process_group(backend.NAME)
    comms = [dist.new_group(ranks, backend=backend.NAME) for ranks in groups[1:]]
    case = CASES[spec.case]
    tell(folder, "started", rank)

    def stepped(step: int) -> None:
        if step + 1 == spec.step:
            tell(folder, "healthy", rank)

    trainer = script.Trainer(
        rank, spec.world_size, device, comms[0], comms[1], comms[2], partial(_happens, spec, case),
        kernel_s=case.kernel_s,
    )  # fmt: skip
    if case.counted:
        script.train(trainer, FOREVER, stepped)
    script.train_uncounted(trainer, stepped)


def _happens(spec: Spec, case: Any, phase: str, trainer: Any) -> None:
    from tests.spinning.faults import Scene

    if case.strike is None or phase != case.phase or trainer.step < spec.step:
        return
    if not case.again and trainer.step != spec.step:
        return
    if not case.everyone and trainer.rank != spec.culprit:
        return
    if trainer.step == spec.step:
        tell(Path(spec.folder), "effect", trainer.rank)
    case.strike(Scene(trainer, Path(spec.folder)))
