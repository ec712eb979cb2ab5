"""Records a training process from inside, and inspects it from outside.

What runs inside a job is in `record/` and `hooks/`, and is standard library only::

    from grpo_doctor_probes import phase, step

    with step(7):
        with phase("rollout"):
            ...

All of it does nothing unless the environment names a run directory (`grpo-doctor run` does), and
none of it ever raises into the program that calls it. Everything else runs outside a job, and is
imported only there.
"""

from __future__ import annotations

from grpo_doctor_probes.record.collectives import watch_collectives
from grpo_doctor_probes.record.events import counter, describe, instant, metrics
from grpo_doctor_probes.record.recorder import start, stop
from grpo_doctor_probes.record.spans import phase, step

__all__ = [
    "counter",
    "describe",
    "instant",
    "metrics",
    "phase",
    "start",
    "step",
    "stop",
    "watch_collectives",
]
