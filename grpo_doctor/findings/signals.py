"""What a recording must hold before a rule can judge it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from grpo_doctor.analysis import Analysis
from grpo_doctor.analysis.sampled import series_named
from grpo_doctor.whatif.prediction import NEEDS_STEPS


@dataclass(frozen=True, slots=True)
class Signal:
    """A part of a recording: `text` says what is missing without it, and how to get it.

    `reads` are the names that a rule may read once it declares this: of series and counters, of
    metrics, and of the parts below that have none of their own. `why` gives the reason that holds
    for one recording, empty where `text` says all.
    """

    text: str
    present: Callable[[Analysis], bool]
    reads: tuple[str, ...] = ()
    why: Callable[[Analysis], str] = lambda _: ""


STEPS = Signal(
    f"at least {NEEDS_STEPS} steps after the warm-up: record a longer run",
    lambda a: len(a.steps.used) >= NEEDS_STEPS,
)
PHASES = Signal(
    "phases: record with `grpo-doctor run`; mark them with grpo_doctor_probes.phase",
    lambda a: a.has_phases,
)
COLLECTIVES = Signal(
    "collectives of several ranks: call grpo_doctor_probes.watch_collectives()",
    lambda a: a.waits.collectives > 0,
    ("collectives",),
)
GPU_MEMORY = Signal(
    "GPU memory samples: record with `grpo-doctor run` on the GPU's machine",
    lambda a: bool(a.gpu_memory),
    ("GPU memory",),
)
# The mean and the longest completion of a step, as TRL and ms-swift log them.
LENGTHS_LOGGED = ("completions/mean_length", "completions/max_length")
# The metrics of single reward functions.
REWARD_COMPONENTS = "rewards/*"
SETTINGS = Signal(
    "settings of TRL, ms-swift, verl or OpenRLHF: grpo_doctor_probes.describe(config=...)",
    lambda a: bool(a.trace.run.knobs),
)


def sampled(name: str, how: str) -> Signal:
    """Return a series or counter of this name; `how` says what records it."""
    return Signal(f"`{name}`: {how}", lambda a: bool(series_named(a.trace, name)), (name,))


def logged(*keys: str) -> Signal:
    """These metrics, by their framework's own names, as one alternative of `any_of`."""
    return Signal("", lambda a: a.trace.metrics.values.keys() >= set(keys), keys)


def any_of(text: str, *signals: Signal) -> Signal:
    """At least one of several."""
    reads = tuple(name for signal in signals for name in signal.reads)
    return Signal(text, lambda a: any(signal.present(a) for signal in signals), reads)


def all_of(*signals: Signal) -> Signal:
    """Return all of several, as one alternative of `any_of`."""
    reads = tuple(name for signal in signals for name in signal.reads)
    return Signal("", lambda a: all(signal.present(a) for signal in signals), reads)
