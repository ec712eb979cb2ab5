"""Estimate the memory of a launch per role and phase, before anything is started.

`estimate` takes a launch and a machine and returns a `Ledger`; sizes are bytes, lengths tokens.
`ledger_of` does the same for a `Setup`, which contains no framework's names.
"""

from __future__ import annotations

from dataclasses import replace

from grpo_doctor.launches import Launch
from grpo_doctor.memory.cards import Machine, card_bytes
from grpo_doctor.memory.change import Change, fixes, relief, room, solve
from grpo_doctor.memory.edits import Edit
from grpo_doctor.memory.estimate import ledger_of, server_pool
from grpo_doctor.memory.facts import calibration
from grpo_doctor.memory.from_launch import Job, setup_of
from grpo_doctor.memory.launched_batch import prompts_assumed
from grpo_doctor.memory.ledger import Component, Interval, Ledger, Phase, Pool
from grpo_doctor.memory.models import ModelShape, model_shape
from grpo_doctor.memory.setup import GIB, RolloutEngine, Setup

__all__ = [
    "GIB", "Change", "Component", "Edit", "Interval", "Job", "Ledger", "Machine", "ModelShape",
    "Phase", "Pool", "RolloutEngine", "Setup", "card_bytes", "estimate", "fixes", "ledger_of",
    "model_shape", "prompts_assumed", "relief", "room", "setup_of", "solve",
]  # fmt: skip


def estimate(launch: Launch, machine: Machine) -> Ledger:
    """Return the memory estimate of a launch on a machine.

    Raises:
        UsageError: the launch names no model.
        UnknownModelError: the shape of its model is not known here.
    """
    job = setup_of(launch, machine)
    if job.trainer is None:
        assert job.server is not None
        ledger = Ledger((server_pool(job.server, calibration()),))
    else:
        ledger = ledger_of(job.trainer, server=job.server)
    return replace(ledger, assumptions=job.assumptions)
