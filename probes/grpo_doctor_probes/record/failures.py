"""The error that leaves a phase, as it passes, or ends the process: what a rank says last."""

from __future__ import annotations

import os
from time import monotonic_ns

from grpo_doctor_probes.record import sidecar
from grpo_doctor_probes.record.events import instant
from grpo_doctor_probes.record.redact import redact_text
from grpo_doctor_probes.record.rundir import ERRORS_JSONL

PREFIX = "error/"
CUT = "cut/"
_MOST = 16  # a host may use errors to steer, and each text is a name of its own in the file
_LONGEST = 160
_STEERING = (StopIteration, StopAsyncIteration, GeneratorExit)


class _Noted:
    """What was noted already in this process."""

    count = 0
    cuts = 0
    last: int = 0


def note_failure(key: object, error: BaseException) -> None:
    """Record `error/PHASE/TYPE: first line` where an error leaves its innermost phase.

    The host may catch it and continue; whether it ended the run says the end of the run.
    """
    if not isinstance(error, Exception) or isinstance(error, _STEERING):
        return
    if _Noted.last == id(error) or _Noted.count >= _MOST:
        return
    _Noted.last = id(error)
    _Noted.count += 1
    phase = str(key[0] if isinstance(key, tuple) else key).partition("/")[0]
    instant(f"{PREFIX}{phase}/{_in_one_line(error)}"[:_LONGEST])


def note_cut(error: BaseException) -> None:
    """Record `cut/TYPE` where an exception leaves a step: it closes the step before its end."""
    if not isinstance(error, _STEERING) and _Noted.cuts < _MOST:
        _Noted.cuts += 1
        instant(f"{CUT}{type(error).__name__}"[:_LONGEST])


def note_uncaught(error: BaseException, run_dir: str) -> None:
    """Append the error that ends this process to the run directory. Raises OSError."""
    facts = {
        "text": _in_one_line(error)[:_LONGEST],
        "pid": os.getpid(),
        "host": os.uname().nodename,
        "rank": sidecar.number("RANK"),
        "at_ns": monotonic_ns(),
    }
    sidecar.append_line(f"{run_dir}/{ERRORS_JSONL}", facts)


def _in_one_line(error: BaseException) -> str:
    """`TYPE: first line`; of one that carries another process's traceback, that one's last line."""
    lines = str(error).strip().splitlines() or [""]
    if any(line.lstrip().startswith('File "') for line in lines):
        return redact_text(lines[-1].strip())
    return f"{type(error).__name__}: {redact_text(lines[0])}"
