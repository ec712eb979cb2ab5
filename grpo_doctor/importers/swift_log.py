"""ms-swift's `logging.jsonl`, one row a logged step, of ms-swift 2 to 4.

`train_speed` is the mean since training began, so that the time between two rows can be had from
it: all of it, also what `step_time` leaves out.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from grpo_doctor.errors import TraceError
from grpo_doctor.importers.reconstruct import reconstruct
from grpo_doctor.importers.text import lines
from grpo_doctor.importers.trainer_log import RUN_TIME, STEP_TIME_COVERS, facts, numbers, step_log
from grpo_doctor.trace.jsonfile import BAD_JSON, BARE_NAN
from grpo_doctor.trace.model import Trace

_WHAT = "a logging.jsonl of ms-swift"
_PROGRESS = "global_step/max_steps"
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


def recognises(path: Path, head: bytes) -> bool:
    """Whether this is such a file."""
    del path
    first = head.lstrip()
    return first.startswith(b"{") and b'"global_step/max_steps"' in first


def load(path: Path) -> Trace:
    """The steps of the log, numbered as there.

    Raises:
        TraceError: no row of it can be read.
    """
    rows, problems, cut_off = _rows(path)
    by_step: dict[int, list[dict[str, Any]]] = {}
    for row in rows:
        step = _step_of(row)
        if step is not None and RUN_TIME not in row:
            if by_step and step < next(reversed(by_step)):  # resumed into the same file
                by_step = {k: v for k, v in by_step.items() if k < step}
            by_step.setdefault(step, []).append(row)
    wall = _wall_seconds(by_step)
    log = step_log({step: list(map(numbers, rows)) for step, rows in by_step.items()}, wall)
    of_job = facts(_WHAT, path, log.steps.values(), (_WALL if wall else STEP_TIME_COVERS,))
    return reconstruct(
        path,
        replace(
            of_job, framework="ms-swift", problems=(*of_job.problems, *problems), truncated=cut_off
        ),
        log,
    )


def _rows(path: Path) -> tuple[list[dict[str, Any]], list[str], bool]:
    decoder = msgspec.json.Decoder(dict[str, Any])
    rows: list[dict[str, Any]] = []
    damaged: list[int] = []
    cut_off = False
    for line_number, line, whole in lines(path):
        if not line.strip():
            continue
        text = BARE_NAN.sub(lambda match: b'"' + match[0].strip() + b'"', line.encode())
        try:
            rows.append(decoder.decode(text))
        except BAD_JSON:
            cut_off |= not whole
            if whole:
                damaged.append(line_number)
    if not rows:
        raise TraceError(
            f"{path}, line 1 is no JSON object, nor is any other. Accepted is the logging.jsonl "
            "that ms-swift writes into its output folder."
        )
    problems = [f"lines that are no JSON left out: {damaged[:8]}"] if damaged else []
    return rows, problems, cut_off


def _step_of(row: dict[str, Any]) -> int | None:
    text, _, _ = str(row.get(_PROGRESS, "")).partition("/")
    return int(text) if text.isdecimal() else None


def wall_of(rows: dict[int, list[dict[str, Any]]]) -> tuple[dict[int, float], str]:
    """The seconds of each step by `train_speed`, where the rows have it, and what they cover."""
    return _wall_seconds(rows), _WALL


def _wall_seconds(by_step: dict[int, list[dict[str, Any]]]) -> dict[int, float]:
    """The seconds of each step, the mean since the row before; none where the log is too coarse, or
    goes on from a checkpoint: then nobody says since which step the speed is meant."""
    seconds: dict[int, float] = {}
    before, before_s, before_error_s = 0, 0.0, 0.0
    for step, rows in by_step.items():
        elapsed = _elapsed(step, rows[-1])
        if elapsed is None:
            continue
        elapsed_s, error_s = elapsed
        length = elapsed_s - before_s
        if length <= 0 or error_s + before_error_s > _MOST_ERROR * length:
            return {}
        seconds[step] = length / (step - before)
        before, before_s, before_error_s = step, elapsed_s, error_s
    return seconds


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
