"""The first line of `check` where a job is about to be started that does not fit, or would end."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace

from grpo_doctor.cli.check import launch_here
from grpo_doctor.cli.check_memory import Request
from grpo_doctor.cli.checking import first_line
from grpo_doctor.errors import GrpoDoctorError

_BAD = ("oom", "invalid")
MORE = "grpo-doctor check -- ... says more, --no-check leaves this out"


def warning(arguments: Sequence[str], ranks: int | None = None) -> str | None:
    """One line, or None where nothing is wrong or nothing can be told; never raises.

    Args:
        arguments: what is about to be started.
        ranks: of the bundled trainer, where the user says how many.
    """
    with contextlib.suppress(Exception):  # whatever goes wrong here, the job is started
        return _warning(arguments, ranks)
    return None


def _warning(arguments: Sequence[str], ranks: int | None) -> str | None:
    try:
        launch, gpus = launch_here(arguments)
    except GrpoDoctorError:
        return None  # no command that is known
    if gpus and ranks:
        gpus = replace(gpus, count=ranks)
    verdict, headline = first_line(launch, Request(gpus, is_here=True))
    return f"check: {headline} ({MORE})" if verdict in _BAD else None
