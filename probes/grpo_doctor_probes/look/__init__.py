"""Looks at a job from outside: counters, stacks, blocked calls, limits, host, GPUs, logs, engines.

Nothing here stops a thread of the job, but for `native_stacks` and `positions`, and nothing raises
because a process ends meanwhile or hides from us: such records have a `problem`.
"""

from __future__ import annotations

from grpo_doctor_probes.look.blocked import blocked
from grpo_doctor_probes.look.coroutines import awaits
from grpo_doctor_probes.look.filecalls import lock_file
from grpo_doctor_probes.look.gpus import gpus
from grpo_doctor_probes.look.host import host
from grpo_doctor_probes.look.httpengines import engines
from grpo_doctor_probes.look.limits import limits
from grpo_doctor_probes.look.logs import logs
from grpo_doctor_probes.look.positions import positions
from grpo_doctor_probes.look.processes import processes
from grpo_doctor_probes.look.pyspy import arguments, locals_digests
from grpo_doctor_probes.look.recorded import open_spans
from grpo_doctor_probes.look.stackreading import native_stacks, stacks, stacks_again

__all__ = [
    "arguments",
    "awaits",
    "blocked",
    "engines",
    "gpus",
    "host",
    "limits",
    "locals_digests",
    "lock_file",
    "logs",
    "native_stacks",
    "open_spans",
    "positions",
    "processes",
    "stacks",
    "stacks_again",
]
