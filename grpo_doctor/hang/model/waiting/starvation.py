"""Ranks that would run and get no core, or no memory. Pure."""

from __future__ import annotations

from grpo_doctor.hang.model.view import Process

THROTTLED = 0.3  # of the time held back by its quota
DELAYED = 0.3  # of the time runnable without a core
HARDLY_RUNS = 0.25  # of the time that it waited for a core
_MOSTLY_DELAYED = 0.5


def throttled(proc: Process) -> bool:
    """Whether its quota is what holds it up."""
    return proc.throttled_share >= THROTTLED


def hardly_runs(proc: Process) -> bool:
    """Whether it wants a core most of the time and has one hardly ever, whatever the reason.

    A process that shares a core fairly with one or two others does not count.
    """
    activity = proc.activity
    wants = activity.delay_share >= _MOSTLY_DELAYED
    return wants and activity.cpu_share < HARDLY_RUNS * activity.delay_share
