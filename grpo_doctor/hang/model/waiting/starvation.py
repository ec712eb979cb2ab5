"""Ranks that would run and get no core, or no memory. Pure."""

from __future__ import annotations

from grpo_doctor.hang.model.scene import Actor

THROTTLED = 0.3  # of the time held back by its quota
DELAYED = 0.3  # of the time runnable without a core
HARDLY_RUNS = 0.25  # of the time that it waited for a core
_MOSTLY_DELAYED = 0.5


def throttled(actor: Actor) -> bool:
    """Whether its quota is what holds it up."""
    return actor.throttled_share >= THROTTLED


def hardly_runs(actor: Actor) -> bool:
    """Whether it wants a core most of the time and has one hardly ever, whatever the reason.

    A process that shares a core fairly with one or two others does not count.
    """
    motion = actor.motion
    wants = motion.delay_share >= _MOSTLY_DELAYED
    return wants and motion.cpu_share < HARDLY_RUNS * motion.delay_share
