"""What TRL and ms-swift print of each logged step: `{'loss': '0.01', 'reward': '0.5', ...}`, JSON
lines, as wandb's, and the table that a notebook shows, also pasted as Markdown.

ms-swift 2 to 4 log `train_speed`, the mean since training began. Of others the progress bar is
left, which counts whole seconds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from grpo_doctor import knobs
from grpo_doctor.errors import TraceError
from grpo_doctor.importers.reconstruct import reconstruct
from grpo_doctor.importers.text import NUMBER, FatalLines, command_of, lines, unwrapped
from grpo_doctor.importers.trainer_state import (
    RUN_TIME,
    STEP_TIME,
    facts,
    numbers,
    of_step_times,
    step_log,
    whole_training,
)
from grpo_doctor.trace.model import Trace

# Newer versions of transformers print numbers as text; JSON has double quotes.
_PAIR = re.compile(rf"""(['"])([^'"{{}}]+)\1: ?['"]?{NUMBER}\)?['"]?(?=\s*[,}}])""")
_TEXT = re.compile(r"""(['"])(global_step/max_steps|elapsed_time)\1: ?['"]([^'"]+)['"]""")
_GAP = re.compile(r"\s{0,99}\|\s*|\t+|\s{2,}")
_SLASH = re.compile(r"\s{0,9}/\s{0,9}")
_RULE = re.compile(r"[\s|:-]+")
_SOURCE = re.compile(r'\s{0,99}"')  # a line of text of a notebook's cell, as an example in it
_CELL = re.compile(r"<t([hd])[^<>]*>([^<]*)</t[hd]>")
_NAMES = {"Training Loss": "loss", "Validation Loss": "eval_loss", "Step": "step"}
# Names of a step's number; wandb's rows have a prefix of their own.
_STEPS = ("step", "global_step", "_step")
_PREFIX = "train/"
# What only a run that has rewards logs.
_OF_REWARDS = re.compile(
    r"reward|rewards/.+|completions?[/_](?:mean_)?length|critic/(?:score|rewards)/mean"
    r"|rollout/reward_mean|response_length/mean"
)


def dictionary(line: str) -> dict[str, Any]:
    """Return the numbers of a row that a line holds, with ms-swift's texts of progress and time."""
    row: dict[str, Any] = {
        key.removeprefix(_PREFIX): float(value) for _, key, value in _PAIR.findall(line)
    }
    return row | {key: value for _, key, value in _TEXT.findall(line)} if row else {}


def of_rewards(row: Mapping[str, Any]) -> bool:
    """Return whether a row is of a run that has rewards."""
    return len(row) > 1 and any(_OF_REWARDS.fullmatch(key) for key in row)


def _of_evaluation(row: Mapping[str, Any]) -> bool:
    return any(key.startswith("eval_") for key in row)


def is_row(row: Mapping[str, Any]) -> bool:
    """Return whether this is a row of a trainer's log, and no other dictionary."""
    return of_rewards(row) or "loss" in row or RUN_TIME in row or _of_evaluation(row)


def step_of(row: dict[str, Any]) -> int | None:
    """Return the number of the step, taken out of the row; None where it has none."""
    progress, _, _ = str(row.get("global_step/max_steps", "")).partition("/")
    if progress.isdecimal():
        return int(progress)
    numbers = [row.pop(name) for name in _STEPS if name in row]
    return int(numbers[0]) if numbers and numbers[0] == numbers[0] // 1 else None


class Table:
    """A table of steps, line by line: Markdown, what a notebook shows, or HTML of one."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._cells: list[str] = []
        self._heading = False

    def read(self, line: str) -> dict[str, Any]:
        """Return the row that ends with this line; empty for any other line."""
        if tags := _CELL.findall(line):
            self._cells += [text.strip() for _, text in tags]
            self._heading = tags[-1][0] == "h"
        if "</tr>" in line:
            cells, self._cells = self._cells, []
            return self._row(cells)
        if tags or not _GAP.search(line.strip()) or _RULE.fullmatch(line) or _SOURCE.match(line):
            return {}
        return self._row(_GAP.split(line.strip().strip("|").strip()))

    def _row(self, cells: list[str]) -> dict[str, Any]:
        names = [_NAMES.get(cell, _SLASH.sub("/", cell)) for cell in cells]
        if "step" in names and len(names) > 1:
            self._names = names
            return {}
        if len(cells) != len(self._names):
            return {}
        pairs = zip(self._names, cells, strict=True)
        found = {name: re.fullmatch(NUMBER, cell) for name, cell in pairs}
        if found["step"] is None:
            return {}
        return {name: float(match[1]) for name, match in found.items() if match}


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
    """The bar that counts the steps: the first one without a name, after the last state of an
    earlier training run's, which follows that run's last row."""

    def __init__(self, earlier: ProgressBar | None = None) -> None:
        self._earlier = earlier
        self._total = ""
        self._states: list[tuple[int, int]] = []
        self._marks: dict[int, tuple[int, int]] = {}

    def read(self, line: str) -> None:
        """Bars that a line may hold."""
        if self._earlier:
            self._earlier.read(line)
        for before, step, total, clock in _BAR.findall(line) if "%|" in line else ():
            if self._earlier and not self._total and (int(step), total) == self._earlier.last:
                continue
            self._total = self._total or ("" if before == ":" else total)
            if before != ":" and total == self._total:
                seconds = 0
                for part in clock.split(":"):
                    seconds = 60 * seconds + int(part or 0)
                self._states = [*self._states[:1], (int(step), seconds)]

    @property
    def last(self) -> tuple[int, str]:
        """The step that it shows, and the number of steps that it counts to."""
        return (self._states[-1][0] if self._states else 0, self._total)

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

    def apart(self, rows: int) -> int:
        """How many steps lie between two of so many rows, by a bar that counted all; else 0."""
        total, begin = self.ended[0], self._states[0][0] if self._states else 0
        apart = 0 if begin else total // max(rows, 1)
        alone = apart and total // apart == rows != total // (apart - 1 or total + 1)
        return apart if alone else 0

    @property
    def ended(self) -> tuple[int, int]:
        """The steps that a whole run had and its seconds; zeros of another one."""
        state = self._states[-1] if self._states else (0, 0)
        return state if str(state[0]) == self._total else (0, 0)


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


_WHAT = "a console log of TRL or ms-swift"
_OF_OTHERS = "a log of training metrics"
_ROW = re.compile(r"""\{(['"])[\w/() -]{2,60}\1: ?['"]?[-+\dnN]""")
_COUNTED = "The log has no step numbers; its rows are counted from 1."
_OWN = ("trl", "ms-swift")
_COMMANDS = ("trl grpo", "swift rlhf", "cli/rlhf.py", "train_grpo.py")


def recognises(path: Path, head: bytes) -> bool:
    """Return whether this is a text with such rows."""
    if b"\0" in head or not head.strip():
        return False
    try:
        return any(of_rewards(row) for _, _, row, _ in _lines(path))
    except TraceError:
        return False


def load(path: Path) -> Trace:
    """Return the steps of the log; a row that is cut off has the values before the cut."""
    by_step: dict[int, list[dict[str, Any]]] = {}
    command: tuple[str, ...] = ()
    fatal, bar = FatalLines(), ProgressBar()
    cut_off = swift = counted = False
    step, runtime, earlier = 0, None, 0
    finished: ProgressBar | None = None
    for number, line, row, whole in _lines(path):
        bar.read(line)
        if not row:
            fatal.read(number, line)
            command = command or _command(line)
            continue
        fatal.step()
        cut_off = not whole
        swift |= "global_step/max_steps" in row
        if RUN_TIME in row:
            runtime = numbers(row).get(RUN_TIME)
            finished, bar = bar, ProgressBar(bar)
            continue
        if finished and "loss" in row:
            earlier, by_step, step, runtime, finished = earlier + 1, {}, 0, None, None
        numbered = step_of(row)
        if numbered is not None:
            if numbered < step:  # resumed into the same file
                by_step = {number: rows for number, rows in by_step.items() if number < numbered}
            step = numbered
        elif swift:  # a row without its end
            continue
        elif "loss" in row or (of_rewards(row) and not _of_evaluation(row)):
            step, counted = step + 1, True
            bar.mark(step)
        by_step.setdefault(step, []).append(row)
    bar = finished or bar
    wall, said = wall_of(by_step) if swift else ({}, "")
    if counted:
        by_step, wall, said, counted = _by_bar(by_step, bar)
    log = step_log({step: list(map(numbers, rows)) for step, rows in by_step.items()}, wall)
    steps, seconds = bar.ended
    notes = [said if wall else of_step_times(log), *whole_training(runtime or seconds, steps)]
    notes += [_COUNTED] if counted else []
    notes += [f"The log has {earlier + 1} training runs; this is the last."] if earlier else []
    of_job = facts(_WHAT, path, log.steps.values(), notes)
    framework = "ms-swift" if swift else of_job.framework
    settings = of_job.knobs or knobs.from_command(framework, of_job.framework_version, command)
    problems = (*of_job.problems, *(("the last line is cut off",) if cut_off else ()))
    return reconstruct(
        path,
        replace(
            of_job,
            what=of_job.what if framework in _OWN else _OF_OTHERS,
            framework=framework,
            command=command,
            knobs=settings,
            problems=problems,
            truncated=cut_off,
            fatal=fatal,
        ),
        log,
    )


def _command(line: str) -> tuple[str, ...]:
    return next(filter(None, (command_of(line, program) for program in _COMMANDS)), ())


def _by_bar(
    by_step: dict[int, list[dict[str, Any]]], bar: ProgressBar
) -> tuple[dict[int, list[dict[str, Any]]], dict[int, float], str, bool]:
    """The rows at the steps that the bar shows, the seconds of these and what they cover, and
    whether the rows are still counted only."""
    timed = any(STEP_TIME in row for rows in by_step.values() for row in rows)
    steps, wall, said = ({}, {}, "") if timed else bar.times(by_step)
    apart = bar.apart(len(by_step))
    numbered = {steps.get(row, (apart or 1) * row): rows for row, rows in by_step.items()}
    return numbered, wall, said, not (steps or apart)


def _lines(path: Path) -> Iterator[tuple[int, str, dict[str, Any], bool]]:
    """Yield each line with the row that it holds, which may be empty."""
    table = Table()
    for number, line, whole in unwrapped(lines(path), _ROW):
        row = dictionary(line)
        if is_row(row):
            yield number, line, row, whole or line.rstrip().endswith("}")
            continue
        row = table.read(line)
        if not is_row(row):  # a table of something else
            row = {}
        elif not whole:
            row.popitem()
        yield number, line, row, whole
