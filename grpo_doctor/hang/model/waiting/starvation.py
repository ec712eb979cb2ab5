"""Ranks that would run and get no core, or no memory. Pure."""

from __future__ import annotations

from grpo_doctor.hang.model.scene import Actor

THROTTLED = 0.3  # of the time held back by its quota
DELAYED = 0.3  # of the time runnable without a core
HARDLY_RUNS = 0.25  # of the time that it waited for a core
_HELD_BACK_AT_ALL = 0.02
_MOSTLY_DELAYED = 0.5
_FULL = 0.99  # of a memory limit


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


def answers_late(actor: Actor) -> bool:
    """Whether a thread of it that is stopped for a call may get no core to end the call with.

    A quota is spent for the rest of its period, 0.1 s as a rule, and all threads of the control
    group stand meanwhile.
    """
    return actor.throttled_share >= _HELD_BACK_AT_ALL or hardly_runs(actor) or _lacks_memory(actor)


def _lacks_memory(actor: Actor) -> bool:
    """Whether its control group has no memory left, so that the call could wait for some."""
    limits = actor.limits[-1] if actor.limits else None
    if limits is None or not limits.memory_limit_bytes:
        return False
    return (limits.memory_used_bytes or 0) >= _FULL * limits.memory_limit_bytes
