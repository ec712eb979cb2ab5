"""The time between two rows of a log: all of it, also what `step_time` leaves out.

ms-swift 2 to 4 log `train_speed`, the mean since training began. Of others the progress bar is
left, which counts whole seconds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

_SECONDS_PER_STEP = "train_speed(s/it)"
_STEPS_PER_SECOND = "train_speed(iter/s)"
# Digits after the point that ms-swift keeps of a speed.
_ROUNDING = 0.5e-6
# A difference of two rounded times may be off by this much of a step, else `step_time` is better.
_MOST_ERROR = 0.02
_CLOCK = "elapsed_time"
_CLOCK_STEP_S = 1.5
_ELAPSED = re.compile(r"(\d+)([dhms])")
_UNIT_S = {"d": 86400, "h": 3600, "m": 60, "s": 1}
_WALL = (
    "The step time is the time between two rows of the log, by its {}; it includes evaluation "
    "and checkpoints between them."
)
# tqdm's, with the end of what stands before it: Trainer's own bars have no name, `Map:` has.
_BAR = re.compile(r"(\S?)\s{0,9}\b\d{1,3}%\|[^|\r]*\|\s{0,9}(\d{1,12})/(\d{1,12}) \[([\d:]{1,20})<")
_SHORTEST_S = 20.0  # whole seconds are 5% of it


class ProgressBar:
    """The bar that counts the steps: the first one without a name."""

    def __init__(self) -> None:
        self._total = ""
        self._states: list[tuple[int, int]] = []
        self._marks: dict[int, tuple[int, int]] = {}

    def read(self, line: str) -> None:
        """Bars that a line may hold."""
        for before, step, total, clock in _BAR.findall(line) if "%|" in line else ():
            self._total = self._total or ("" if before == ":" else total)
            if before != ":" and total == self._total:
                seconds = 0
                for part in clock.split(":"):
                    seconds = 60 * seconds + int(part or 0)
                self._states = [*self._states[:1], (int(step), seconds)]

    def mark(self, row: int) -> None:
        """A row was logged."""
        if self._states:
            self._marks[row] = self._states[-1]

    def times(self, rows: Iterable[int]) -> tuple[dict[int, int], dict[int, float], str]:
        """Of each row the step that the bar showed, the seconds of one step since the row before,
        and what they cover; nothing where the bar lags behind or the rows are too close."""
        steps, seconds = {}, {}
        before, before_s = self._states[0] if self._states else (0, 0)
        for row in rows:
            step, now_s = self._marks.get(row, (0, 0))
            if step <= before or now_s - before_s < _SHORTEST_S:
                return {}, {}, ""
            steps[row], seconds[step] = step, (now_s - before_s) / (step - before)
            before, before_s = step, now_s
        return steps, seconds, _WALL.format("progress bar")


def wall_of(by_step: dict[int, list[dict[str, Any]]]) -> tuple[dict[int, float], str]:
    """The seconds of each step by `train_speed`, the mean since the row before, and what they
    cover; no seconds if the log is too coarse, or resumes from a checkpoint: then the first
    step of the reported speed is unknown."""
    seconds: dict[int, float] = {}
    before, before_s, before_error_s = 0, 0.0, 0.0
    for step, rows in by_step.items():
        elapsed = _elapsed(step, rows[-1])
        if elapsed is None:
            continue
        elapsed_s, error_s = elapsed
        length = elapsed_s - before_s
        if length <= 0 or error_s + before_error_s > _MOST_ERROR * length:
            return {}, ""
        seconds[step] = length / (step - before)
        before, before_s, before_error_s = step, elapsed_s, error_s
    return seconds, _WALL.format("`train_speed`")


def _elapsed(step: int, row: dict[str, Any]) -> tuple[float, float] | None:
    """Return seconds since training began, and how far off they may be."""
    per_step, per_second = row.get(_SECONDS_PER_STEP), row.get(_STEPS_PER_SECOND)
    if isinstance(per_step, float) and per_step > 0:
        elapsed_s, error_s = step * per_step, step * _ROUNDING
    elif isinstance(per_second, float) and per_second > 0:
        elapsed_s = step / per_second
        error_s = elapsed_s * _ROUNDING / per_second
    else:
        return None
    said_s = sum(int(n) * _UNIT_S[unit] for n, unit in _ELAPSED.findall(str(row.get(_CLOCK, ""))))
    resumed = abs(said_s - elapsed_s) > _CLOCK_STEP_S + _MOST_ERROR * elapsed_s
    return (elapsed_s, float("inf")) if resumed else (elapsed_s, error_s)
