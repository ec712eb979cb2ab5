"""What a recording must hold before a rule can judge it."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

import numpy as np

from grpo_doctor.analysis import Analysis
from grpo_doctor.whatif.replay import NEEDS_STEPS


class Signal(Enum):
    """A part of a recording; the value says what is missing, and how to get it."""

    STEPS = f"at least {NEEDS_STEPS} steps after the warm-up: record a longer run"
    PHASES = "phases: record with `grpo-doctor run`, or mark them with grpo_doctor_probes.phase"
    COLLECTIVES = "collectives of several ranks: call grpo_doctor_probes.watch_collectives()"
    GPU_MEMORY = "GPU memory samples: record with `grpo-doctor run` on the GPU's machine"
    SETTINGS = "the framework's settings: grpo_doctor_probes.describe(config=...)"


def has_signal(signal: Signal, analysis: Analysis) -> bool:
    """Whether the recording holds it."""
    return _PRESENT[signal](analysis)


_PRESENT: dict[Signal, Callable[[Analysis], bool]] = {
    Signal.STEPS: lambda a: len(a.steps.used) >= NEEDS_STEPS,
    Signal.PHASES: lambda a: bool(np.nansum(a.used_seconds[:, :, :-1]) > 0),
    Signal.COLLECTIVES: lambda a: a.waits.collectives > 0,
    Signal.GPU_MEMORY: lambda a: bool(a.gpu_memory),
    Signal.SETTINGS: lambda a: bool(a.trace.run.knobs),
}
