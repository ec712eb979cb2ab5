"""The time of each step in what ms-swift 2 to 4 logs.

`train_speed` is the mean since training began, so that the time between two rows can be had from
it: all of it, also what `step_time` leaves out.
"""

from __future__ import annotations

import re
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
    "The step time is the time between two rows of the log, by its `train_speed`; evaluation and "
    "checkpoints between them are in it."
)


def wall_of(by_step: dict[int, list[dict[str, Any]]]) -> tuple[dict[int, float], str]:
    """The seconds of each step by `train_speed`, the mean since the row before, and what they
    cover; no seconds where the log is too coarse, or goes on from a checkpoint: then nobody says
    since which step the speed is meant."""
    seconds: dict[int, float] = {}
    before, before_s, before_error_s = 0, 0.0, 0.0
    for step, rows in by_step.items():
        elapsed = _elapsed(step, rows[-1])
        if elapsed is None:
            continue
        elapsed_s, error_s = elapsed
        length = elapsed_s - before_s
        if length <= 0 or error_s + before_error_s > _MOST_ERROR * length:
            return {}, _WALL
        seconds[step] = length / (step - before)
        before, before_s, before_error_s = step, elapsed_s, error_s
    return seconds, _WALL


def _elapsed(step: int, row: dict[str, Any]) -> tuple[float, float] | None:
    """Seconds since training began, and how far off they may be."""
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
