"""What a model is: how some settings change the work of a step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grpo_doctor.analysis import Analysis
from grpo_doctor.analysis.sampled import series_named, values_in
from grpo_doctor.errors import GrpoDoctorError
from grpo_doctor.whatif.prediction import NOTHING, Effect
from grpo_doctor.whatif.step_model import StepModel

__all__ = ["NOTHING", "Case", "CostModel", "Effect", "UnsupportedError", "knob"]


class UnsupportedError(GrpoDoctorError):
    """A change that this run's measurements say nothing about; the message is the reason."""


@dataclass(frozen=True, slots=True)
class Case:
    """A run, and the settings of one model that are to change.

    `before` and `after` have the same keys, canonical names; a value that is not known is None.
    """

    analysis: Analysis
    model: StepModel
    before: Mapping[str, Any]
    after: Mapping[str, Any]
    every: Mapping[str, Any] = field(default_factory=dict)  # what changes, of other models too

    def knob(self, name: str) -> Any:
        """Return a setting of this run, else its default in this framework; None where unknown."""
        return knob(self.analysis, name)

    def changed(self, name: str) -> bool:
        """Return whether this setting is to change."""
        return name in self.after

    def work_s(self, part: str) -> float:
        """Return seconds of work per step in a phase or span, the mean over ranks."""
        return self.model.work_s(part)

    def values(self, counter: str) -> NDArray[np.float64]:
        """Return all recorded values of a counter within the used steps, of all ranks in turn."""
        return np.concatenate([np.empty(0), *self._samples(counter)])

    def per_step(self, counter: str) -> float | None:
        """Return a counter's sum per step, on the rank that has most; None without any."""
        steps = len(self.analysis.step_seconds)
        sums = [float(samples.sum()) for samples in self._samples(counter) if len(samples)]
        return max(sums) / steps if sums and steps else None

    def _samples(self, counter: str) -> list[NDArray[np.float64]]:
        inside = self.analysis.used_windows
        return [values_in(series, inside) for series in series_named(self.analysis.trace, counter)]

    def metric(self, name: str) -> NDArray[np.float64]:
        """Return a training metric over the recorded steps, unknown ones left out."""
        values = self.analysis.trace.metrics.values.get(name, np.empty(0))
        return np.asarray(values[np.isfinite(values)])

    @property
    def has_gpu(self) -> bool:
        """Whether any GPU was sampled: kernels then run outside the host's spans."""
        return bool(self.analysis.trace.gpus)


def knob(analysis: Analysis, name: str) -> Any:
    """Return a setting of a run, else its default in its framework; None where neither is known."""
    return analysis.trace.run.setting(name).value


@dataclass(frozen=True, slots=True)
class CostModel:
    """Which settings it speaks of, together, and what it says of a change of some of them.

    `effect` raises `UnsupportedError` outside of what the run has measured.
    """

    name: str
    knobs: tuple[str, ...]
    effect: Callable[[Case], Effect]
