"""What TRL and ms-swift print of each logged step: `{'loss': '0.01', 'reward': '0.5', ...}`, JSON
lines, as wandb's, and the table that a notebook shows, also pasted as Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from grpo_doctor import knobs
from grpo_doctor.errors import TraceError
from grpo_doctor.importers.fatal import FatalLines
from grpo_doctor.importers.reconstruct import reconstruct
from grpo_doctor.importers.rows import RUN_TIME, Table, dictionary, is_row, of_rewards, step_of
from grpo_doctor.importers.step_times import ProgressBar, wall_of
from grpo_doctor.importers.text import command_of, lines, unwrapped
from grpo_doctor.importers.trainer_log import STEP_TIME, facts, numbers, of_step_times, step_log
from grpo_doctor.trace.model import Trace

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
    step = 0
    for number, line, row, whole in _lines(path):
        bar.read(line)
        if not row:
            fatal.read(number, line)
            for program in () if command else _COMMANDS:
                command = command or command_of(line, program)
            continue
        fatal.step()
        cut_off = not whole
        swift |= "global_step/max_steps" in row
        if RUN_TIME in row:
            continue
        numbered = step_of(row)
        if numbered is not None:
            if numbered < step:  # resumed into the same file
                by_step = {number: rows for number, rows in by_step.items() if number < numbered}
            step = numbered
        elif swift:  # a row without its end
            continue
        elif "loss" in row or of_rewards(row):
            step, counted = step + 1, True
            bar.mark(step)
        by_step.setdefault(step, []).append(row)
    wall, said = wall_of(by_step) if swift else ({}, "")
    if counted and not any(STEP_TIME in row for rows in by_step.values() for row in rows):
        steps, wall, said = bar.times(by_step)
        by_step = {steps.get(step, step): rows for step, rows in by_step.items()}
        counted = not steps
    log = step_log({step: list(map(numbers, rows)) for step, rows in by_step.items()}, wall)
    notes = [said if wall else of_step_times(log), *((_COUNTED,) if counted else ())]
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


def _lines(path: Path) -> Iterator[tuple[int, str, dict[str, Any], bool]]:
    """Yield each line with the row that it holds, which may be empty."""
    table = Table()
    for number, line, whole in unwrapped(lines(path), _ROW):
        row = dictionary(line)
        if is_row(row):
            yield number, line, row, whole or line.rstrip().endswith("}")
            continue
        row = table.read(line)
        if row and not whole:
            row.popitem()
        yield number, line, row, whole
