"""How much memory a launch takes: a ledger per role and phase, before anything is started.

`estimate` is the whole of it: a launch and a machine in, a `Ledger` out; sizes are bytes, lengths
tokens. `ledger_of` does the same for a `Setup`, which knows no framework's words.
"""

from __future__ import annotations

from dataclasses import replace

from grpo_doctor.launches import Launch
from grpo_doctor.memory.cards import card_bytes
from grpo_doctor.memory.estimate import ledger_of, server_ledger
from grpo_doctor.memory.from_launch import Job, Machine, setup_of
from grpo_doctor.memory.ledger import Component, Interval, Ledger, Phase, Pool
from grpo_doctor.memory.models import ModelShape, model_shape
from grpo_doctor.memory.setup import GIB, RolloutEngine, Setup

__all__ = [
    "GIB",
    "Component",
    "Interval",
    "Job",
    "Ledger",
    "Machine",
    "ModelShape",
    "Phase",
    "Pool",
    "RolloutEngine",
    "Setup",
    "card_bytes",
    "estimate",
    "ledger_of",
    "model_shape",
    "setup_of",
]


def estimate(launch: Launch, machine: Machine) -> Ledger:
    """The ledger of a launch on a machine.

    Raises:
        UsageError: the launch names no model.
        UnknownModelError: the shape of its model is not known here.
    """
    job = setup_of(launch, machine)
    if job.trainer is None:
        assert job.server is not None
        ledger = server_ledger(job.server)
    else:
        ledger = ledger_of(job.trainer, server=job.server)
    return replace(ledger, assumptions=job.assumptions)
