"""What a rank of the bench does: joins, trains, and is struck by the fault when it is due."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.faults.controls import CONTROLS
from tests.faults.events import tell
from tests.faults.host import enter_network
from tests.faults.registry import Facts, Fault, Scene, load

if TYPE_CHECKING:
    from tests.faults import grpo

HEALTHY_STEPS = 20
FOREVER = 10**9
NOTICE_EVERY = 10


def pace_of(world_size: int) -> float:
    """Seconds of a rollout, so that many ranks leave some of two cores to others."""
    return 0.01 * max(0, world_size - 4)


@dataclass(frozen=True)
class Spec:
    """One job, as the bench wants it. `fault` is "" for a healthy one.

    `step` is where the fault strikes, `control` the harmless slowness of a control,
    `pace_s` what a rollout takes at least.
    """

    folder: str
    world_size: int
    port: int
    fault: str = ""
    culprit: int = -1
    phase: str = ""
    step: int = HEALTHY_STEPS
    steps: int = FOREVER
    control: str = ""
    pace_s: float = 0.0
    facts: Facts = field(default_factory=dict)

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Spec:
        return cls(**json.loads(text))


def run_rank(spec: Spec, rank: int, joining: Facts | None = None) -> None:
    """The whole life of a rank; `joining` is how it meets the others, if not by environment."""
    import torch.distributed as dist

    from tests.faults import grpo

    folder = Path(spec.folder)
    fault = load().get(spec.fault)
    tell(folder, "started", rank)
    if fault is not None and fault.before_init and rank == spec.culprit:
        _strike(fault, spec, rank)
    if "network" in spec.facts:
        enter_network(spec.facts, rank == spec.culprit)
    dist.init_process_group("gloo", timeout=timedelta(minutes=30), **joining or {})

    def stepped(step: int) -> None:
        if step + 1 == spec.step:
            tell(folder, "healthy", rank)
        if step % NOTICE_EVERY == 0:
            sys.stdout.write(f"step {step}: rank {rank} done\n")
            sys.stdout.flush()

    happens = partial(_happens, spec, fault)
    digest = grpo.train(rank, spec.world_size, spec.steps, happens, stepped)
    tell(folder, "result", rank, digest=digest)
    dist.destroy_process_group()


def _happens(spec: Spec, fault: Fault | None, phase: str, trainer: grpo.Trainer) -> bool:
    """The control's slowness, then the fault; True leaves out the rest of the phase."""
    if phase == "rollout":
        time.sleep(spec.pace_s)
    control = CONTROLS.get(spec.control)
    if control is not None and control.inside is not None and control.strikes(phase, trainer):
        control.inside(trainer, Path(spec.folder))
    if fault is None or fault.inside is None or fault.before_init:
        return False
    if (trainer.step, phase) != (spec.step, spec.phase):
        return False
    if trainer.rank != spec.culprit and not fault.everyone:
        return False
    return bool(_strike(fault, spec, trainer.rank, trainer))


def _strike(fault: Fault, spec: Spec, rank: int, trainer: Any = None) -> bool | None:
    assert fault.inside is not None
    folder = Path(spec.folder)
    scene = Scene(rank, spec.world_size, spec.culprit, folder, spec.facts, trainer)
    return fault.inside(scene)
