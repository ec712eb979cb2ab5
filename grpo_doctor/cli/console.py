"""Messages on standard error; standard output belongs to the job and to results.

A terminal that has gone, a closed or a full stream must not cost the recording, the report or the
job's exit code, nor delay its end: what can't be printed is dropped.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys

from grpo_doctor_probes.procs.printable import visible
from grpo_doctor_probes.supervisor.outlet import Outlet

_ERASED = "\r\x1b[K"
# What GitHub takes for a command at the start of a line.
_COMMAND = re.compile(r"(?m)^([ \t]*)(::)")
_OUTLET = Outlet(patience_s=10.0)  # a reader that never comes back must not keep us from ending


class Quiet:
    """Whether `--quiet` was given: progress and paths are dropped, problems are printed."""

    wanted = False


def say(text: str) -> None:
    """Print one line with our name in front."""
    put(f"grpo-doctor: {text}\n")


def inform(text: str) -> None:
    """Print one line of progress, or where a result is."""
    if not Quiet.wanted:
        say(text)


def put(text: str, *, over: bool = False) -> None:
    """Print text without what would act on a terminal or on the log of a GitHub action.

    Args:
        text: One or more lines.
        over: Whether the text replaces the current line of the terminal.
    """
    with contextlib.suppress(ValueError, AttributeError):  # it is closed, or there is none
        shown = _COMMAND.sub(r"\1?\2", visible(text, colored=sys.stderr.isatty()))
        try:
            _OUTLET.write(sys.stderr, _ERASED + shown if over else shown)
        except OSError:
            # What is left in its buffer would fail again at exit, and make the exit code 120.
            with contextlib.suppress(OSError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
