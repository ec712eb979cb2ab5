"""The first line of `check` where a job is about to be started that does not fit, or would end."""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from grpo_doctor.cli.check import launch_here
from grpo_doctor.cli.check_memory import Request
from grpo_doctor.cli.checking import first_line
from grpo_doctor.errors import GrpoDoctorError

_BAD = ("oom", "invalid")
_AT_MOST_S = 2.0
_AT_MOST_BYTES = 512 << 20
_TOO_MUCH = "the launch was not checked: reading it takes more than 2 s or 512 MiB"
MORE = "details: grpo-doctor check -- ...; --no-check skips this"


def warning(arguments: Sequence[str], ranks: int | None = None) -> str | None:
    """Return one line, or None if nothing is wrong or the launch can't be judged; never raise.

    The launch is read in a child: what a script costs to read must not hold up the job.

    Args:
        arguments: what is about to be started.
        ranks: of the bundled trainer, where the user says how many.
    """
    with contextlib.suppress(Exception):  # whatever goes wrong here, the job is started
        return _asked(lambda: _warning(arguments, ranks))
    return None


def _asked(question: Callable[[], str | None]) -> str | None:
    """Return the answer of a child that has 2 s and 512 MiB."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        _answer(question, writing)
    os.close(writing)
    parts: list[bytes] = []
    deadline = time.monotonic() + _AT_MOST_S
    try:
        while select.select([reading], [], [], max(0.0, deadline - time.monotonic()))[0]:
            part = os.read(reading, 1 << 16)
            if not part:
                return b"".join(parts).decode("utf-8", "replace") or None
            parts.append(part)
        return f"check: {_TOO_MUCH} ({MORE})"
    finally:
        os.close(reading)
        os.kill(child, signal.SIGKILL)  # it is ours until it is waited for
        os.waitpid(child, 0)


def _answer(question: Callable[[], str | None], writing: int) -> NoReturn:
    try:
        with contextlib.suppress(OSError):  # no /proc, no limit of memory
            held = int(Path("/proc/self/statm").read_bytes().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (held + _AT_MOST_BYTES,) * 2)
        os.write(writing, (question() or "").encode("utf-8", "replace"))
    except MemoryError:
        os.write(writing, f"check: {_TOO_MUCH} ({MORE})".encode())
    finally:
        os._exit(0)


def _warning(arguments: Sequence[str], ranks: int | None) -> str | None:
    try:
        launch, gpus = launch_here(arguments)
    except GrpoDoctorError:
        return None  # no command that is known
    if gpus and ranks:
        gpus = replace(gpus, count=ranks)
    verdict, headline = first_line(launch, Request(gpus, is_here=True))
    return f"check: {headline} ({MORE})" if verdict in _BAD else None
