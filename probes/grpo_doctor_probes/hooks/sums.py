"""Seconds of each phase between two logs of a job, for its own loggers: `run --log-metrics`."""

from __future__ import annotations

import os
from _thread import get_ident
from collections.abc import Sequence
from time import monotonic_ns

from grpo_doctor_probes.record.rundir import LOG_METRICS_VARIABLE

_PREFIX = "grpo_doctor/"
_NO_PHASE = "callback"  # the user's code between phases


class PhaseSums:
    """Where the thread that has the steps spends its time; the innermost span owns it.

    Time on the host. Phases of other threads are not summed: they run in parallel to the step.

    Args:
        enabled: whether anything is summed at all; otherwise `on` stays False and costs one check.
    """

    def __init__(self, *, enabled: bool) -> None:
        self.on = enabled
        self.restart()

    def restart(self) -> None:
        """Forget everything: another loop begins."""
        self._thread = 0
        self._steps = 0
        self._seconds: dict[str, float] = {}

    def begin_step(self) -> None:
        """Count a step of this thread; the first begins the sums."""
        if not self._thread:
            self._thread = get_ident()
            self._begun_ns = self._since_ns = monotonic_ns()
        self._steps += 1

    def charge(self, open_names: Sequence[str]) -> None:
        """Add the time since the last call to the innermost of these spans, before they change."""
        if get_ident() != self._thread:
            return
        now_ns = monotonic_ns()
        if open_names:
            phase = open_names[-1].partition("/")[0]
            passed_s = (now_ns - self._since_ns) / 1e9
            self._seconds[phase] = self._seconds.get(phase, 0.0) + passed_s
        self._since_ns = now_ns

    def take(self, open_names: Sequence[str]) -> dict[str, float]:
        """Seconds per step since the last call, by the name they are logged under; then from 0.

        `grpo_doctor/step_s` is the whole step, so that what is left of it is in no phase. {} where
        no step has begun since.
        """
        if not self.on or not self._steps or get_ident() != self._thread:
            return {}
        self.charge(open_names)
        seconds = {name: s for name, s in self._seconds.items() if name != _NO_PHASE}
        seconds["step"] = (self._since_ns - self._begun_ns) / 1e9
        means = {f"{_PREFIX}{name}_s": round(s / self._steps, 6) for name, s in seconds.items()}
        # A phase that was logged once is logged always: a gap in a chart is no 0.
        self._seconds = dict.fromkeys(self._seconds, 0.0)
        self._steps = 0
        self._begun_ns = self._since_ns
        return means


SUMS = PhaseSums(enabled=os.environ.get(LOG_METRICS_VARIABLE) == "1")
