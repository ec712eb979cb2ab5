"""Words to the user on standard error; standard output belongs to the job and to results.

A terminal that has gone, a closed or a full stream must not cost the recording, the report or the
job's exit code, nor its end: what can't be printed is dropped.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys

from grpo_doctor_probes.outlet import Outlet
from grpo_doctor_probes.printable import visible

# Somebody may read on after a while; who never does must not keep us from ending with the job.
_ERASED = "\r\x1b[K"
# What GitHub takes for a command, as a line begins.
_COMMAND = re.compile(r"(?m)^([ \t]*)(::)")
_OUTLET = Outlet(patience_s=10.0)


def say(text: str) -> None:
    """One line in our name."""
    put(f"grpo-doctor: {text}\n")


def put(text: str, *, over: bool = False) -> None:
    """Text as it is, but for what would act on a terminal or on the log of an action; `over` what
    the terminal's line holds."""
    with contextlib.suppress(ValueError, AttributeError):  # it is closed, or there is none
        shown = _COMMAND.sub(r"\1?\2", visible(text, colored=sys.stderr.isatty()))
        try:
            _OUTLET.write(sys.stderr, _ERASED + shown if over else shown)
        except OSError:
            # What is left in its buffer would fail again at exit, and make the exit code 120.
            with contextlib.suppress(OSError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
