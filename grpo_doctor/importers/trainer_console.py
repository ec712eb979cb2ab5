"""What TRL and ms-swift print of each logged step: `{'loss': '0.01', 'reward': '0.5', ...}`."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from grpo_doctor import knobs
from grpo_doctor.importers.reconstruct import StepLog, reconstruct
from grpo_doctor.importers.text import NUMBER, command_of, contains, is_log, lines
from grpo_doctor.importers.trainer_log import (
    RUN_TIME,
    STEP_TIME,
    STEP_TIME_COVERS,
    facts,
    logged_step,
)
from grpo_doctor.trace.model import Trace

_WHAT = "a console log of TRL or ms-swift"
_ROW_BYTES = re.compile(rb"\{'loss': [^{}\n]{0,3000}'(?:reward|completions/mean_length)': ")
_ROW = re.compile(r"\{'(?:loss|eval_\w+|train_runtime)': [^{}]*\}?")
# Newer versions of transformers print numbers as text.
_PAIR = re.compile(rf"'([^']+)': '?{NUMBER}'?(?=[,}}])")
# ms-swift numbers its rows, TRL does not.
_PROGRESS = re.compile(r"'global_step/max_steps': '(\d+)/")
_COUNTED = "The log does not number its steps; its rows are counted from 1."
_NO_TIMES = "The log has no step times: TRL logs them since 0.26."
_COMMANDS = ("trl grpo", "swift rlhf", "cli/rlhf.py", "train_grpo.py")


def recognises(path: Path, head: bytes) -> bool:
    """Whether this is a log with such rows."""
    return is_log(head) and contains(path, _ROW_BYTES)


def load(path: Path) -> Trace:
    """The steps of the log; a row that is cut off has the values before the cut."""
    by_step: dict[int, list[dict[str, float]]] = {}
    command: tuple[str, ...] = ()
    cut_off = swift = False
    step = 0
    for _, line, whole in lines(path):
        row = _ROW.search(line)
        if row is None:
            for program in () if command else _COMMANDS:
                command = command or command_of(line, program)
            continue
        values = {key: float(value) for key, value in _PAIR.findall(row[0])}
        numbered = _PROGRESS.search(row[0])
        swift |= numbered is not None
        cut_off = not whole
        if RUN_TIME in values:
            continue
        if numbered:
            step = int(numbered[1])
        elif "loss" in values:
            step += 1
        by_step.setdefault(step, []).append(values)
    log = StepLog()
    for number, rows in by_step.items():
        seconds = next((row[STEP_TIME] for row in rows if STEP_TIME in row), None)
        log.add(logged_step(number, rows, seconds))
    steps = log.steps.values()
    notes = [STEP_TIME_COVERS if any(step.seconds for step in steps) else _NO_TIMES]
    said = facts(_WHAT, path, steps, notes if swift else [*notes, _COUNTED])
    framework = "ms-swift" if swift else said.framework
    settings = said.knobs or knobs.from_command(framework, said.framework_version, command)
    problems = (*said.problems, *(("the last line is cut off",) if cut_off else ()))
    return reconstruct(
        path,
        replace(
            said,
            framework=framework,
            command=command,
            knobs=settings,
            problems=problems,
            truncated=cut_off,
        ),
        log,
    )
