"""What TRL and ms-swift print of each logged step: `{'loss': '0.01', 'reward': '0.5', ...}`."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from grpo_doctor import knobs
from grpo_doctor.importers.reconstruct import reconstruct
from grpo_doctor.importers.text import NUMBER, command_of, contains, is_log, lines
from grpo_doctor.importers.trainer_log import RUN_TIME, facts, of_step_times, step_log
from grpo_doctor.trace.model import Trace

_WHAT = "a console log of TRL or ms-swift"
_ROW_BYTES = re.compile(rb"\{'loss': [^{}\n]{0,3000}'(?:reward|completions/mean_length)': ")
_ROW = re.compile(r"\{'(?:loss|eval_\w+|train_runtime)': [^{}]*\}?")
# Newer versions of transformers print numbers as text.
_PAIR = re.compile(rf"'([^']+)': '?{NUMBER}'?(?=[,}}])")
# ms-swift numbers its rows, TRL does not.
_PROGRESS = re.compile(r"'global_step/max_steps': '(\d+)/")
_COUNTED = "The log does not number its steps; its rows are counted from 1."
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
    log = step_log(by_step, {})
    notes = [of_step_times(log)] if swift else [of_step_times(log), _COUNTED]
    of_job = facts(_WHAT, path, log.steps.values(), notes)
    framework = "ms-swift" if swift else of_job.framework
    settings = of_job.knobs or knobs.from_command(framework, of_job.framework_version, command)
    problems = (*of_job.problems, *(("the last line is cut off",) if cut_off else ()))
    return reconstruct(
        path,
        replace(
            of_job,
            framework=framework,
            command=command,
            knobs=settings,
            problems=problems,
            truncated=cut_off,
        ),
        log,
    )
