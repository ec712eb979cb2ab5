"""What a rule reads of a recording in addition to its spans and settings: only what it declares."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase

import numpy as np
from numpy.typing import NDArray

from grpo_doctor.analysis import Analysis, Table
from grpo_doctor.analysis.gpu import GpuMemory
from grpo_doctor.analysis.learning import Curve, curve
from grpo_doctor.analysis.learning.curves import components, curve_of_key
from grpo_doctor.analysis.per_step import counted, counted_mean
from grpo_doctor.analysis.sampled import counter_sum, highest_mean, series_named
from grpo_doctor.analysis.stragglers import Blame
from grpo_doctor.analysis.waits import Waits
from grpo_doctor.errors import GrpoDoctorError
from grpo_doctor.findings.signals import COLLECTIVES, GPU_MEMORY, REWARD_COMPONENTS, Signal
from grpo_doctor.trace.intervals import Intervals
from grpo_doctor.trace.model import Series


class UndeclaredError(GrpoDoctorError):
    """A rule read what it does not declare."""


class UntimedError(GrpoDoctorError):
    """A rule asks for a phase that the program whose file this is does not time."""


@dataclass(frozen=True)
class Readings:
    """Series, counters, metrics, GPU memory and collectives, as far as they are `declared`.

    `declared` are names, with `*` for any text; None opens everything. Spans and settings are open
    to every rule: no recording is judged without them.
    """

    analysis: Analysis
    declared: frozenset[str] | None = None

    def read(self, *signals: str | Signal) -> None:
        """Say that this is about to be read; for what reads a recording elsewhere.

        Raises:
            UndeclaredError: the rule does not declare one of them.
        """
        if self.declared is None:
            return
        for signal in signals:
            for name in signal.reads if isinstance(signal, Signal) else (signal,):
                if not any(name == glob or fnmatchcase(name, glob) for glob in self.declared):
                    raise UndeclaredError(f"reads {name!r}; add it to the rule's `needs` or `uses`")

    def series(self, name: str) -> tuple[Series, ...]:
        """Return the sampled series and counters of one name that hold any known value."""
        self.read(name)
        return series_named(self.analysis.trace, name)

    def highest_mean(self, name: str, inside: Intervals | None = None) -> float | None:
        """A series' mean over the used steps, or `inside` them, of the host, GPU or rank where it
        is highest; None where nothing was sampled then."""
        self.read(name)
        windows = self.analysis.used_windows if inside is None else inside
        return highest_mean(self.analysis.trace, name, windows)

    def series_names(self, pattern: str) -> list[str]:
        """Return the names of recorded series that match, such as `engine/completions_of_*`."""
        self.read(pattern)
        names = dict.fromkeys(series.name for series in self.analysis.trace.series)
        return [name for name in names if fnmatchcase(name, pattern)]

    def counted(self, name: str) -> NDArray[np.float64]:
        """Return a counter's sum by used step and stepping rank; NaN where a rank recorded none."""
        self.read(name)
        return counted(self.analysis, name)

    def counted_mean(self, name: str) -> float | None:
        """Return a counter's sum per step, the mean over the steps and ranks that recorded it."""
        self.read(name)
        return counted_mean(self.analysis, name)

    def counter_sum(self, name: str) -> float | None:
        """Return a counter's sum over the used steps and all ranks."""
        self.read(name)
        return counter_sum(self.analysis.trace, name, self.analysis.used_windows)

    def metric(self, name: str) -> Curve | None:
        """Return a training metric by its canonical name; None where no step said it."""
        self.read(name)
        return curve(self.analysis.trace, name)

    def metric_called(self, key: str) -> Curve | None:
        """Return a training metric by its framework's own name."""
        self.read(key)
        return curve_of_key(self.analysis.trace, key)

    def metric_mean(self, key: str) -> float | None:
        """Return a metric's mean over the steps that said a number, by its framework's own name."""
        curve = self.metric_called(key)
        return (
            float(curve.finite.values.mean()) if curve is not None and len(curve.finite) else None
        )

    def metric_values(self, key: str) -> NDArray[np.float64] | None:
        """A metric's value at every step that said any metric, by its framework's own name."""
        self.read(key)
        return self.analysis.trace.metrics.values.get(key)

    def reward_components(self) -> dict[str, tuple[Curve, Curve | None]]:
        """Each reward function's mean and, where it is logged, deviation over the completions."""
        self.read(REWARD_COMPONENTS)
        return components(self.analysis.trace)

    @property
    def gpu_memory(self) -> tuple[GpuMemory, ...]:
        """The memory of each sampled GPU."""
        self.read(GPU_MEMORY)
        return self.analysis.gpu_memory

    @property
    def waits(self) -> Waits:
        """Who waited for whom, and what was transfer."""
        self.read(COLLECTIVES)
        return self.analysis.waits

    @property
    def blame(self) -> Blame:
        """Who the ranks waited for."""
        self.read(COLLECTIVES)
        return self.analysis.blame

    @property
    def used_waited(self) -> Table:
        """Seconds waited for other ranks, shape (used steps, ranks, phases and unattributed)."""
        self.read(COLLECTIVES)
        return self.analysis.used_waited
