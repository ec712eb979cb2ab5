"""Read untrusted files in a child process with limits, where no user watches."""

from __future__ import annotations

import argparse
import os
import resource
import signal
import sys

from grpo_doctor.cli.console import say
from grpo_doctor.errors import GrpoDoctorError

MOST_BYTES = 4 << 30
MOST_S = 600
_READERS = ("check", "report")
_FOR_CI = ("github", "sarif")


def is_wanted(options: argparse.Namespace) -> bool:
    """Return whether the command reads files, and its answer goes to a pull request."""
    in_ci = os.environ.get("CI", "").lower() in ("true", "1")
    return options.name in _READERS and (in_ci or options.format in _FOR_CI)


def in_child() -> int | None:
    """Return None in a forked child that has limits, and the child's exit code in the parent."""
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if not child:
        os.environ["OPENBLAS_NUM_THREADS"] = "1"  # each thread takes address space
        _limit(resource.RLIMIT_AS, MOST_BYTES)
        _limit(resource.RLIMIT_CPU, MOST_S)
        return None
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the child has it as well, and answers
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code >= 0:
        return code
    say(
        f"reading this was stopped (signal {-code}): in CI it may take {MOST_BYTES >> 30} GiB and "
        f"{MOST_S // 60} minutes. Check the file, or run the same command without CI=true."
    )
    return GrpoDoctorError.exit_code


def _limit(kind: int, most: int) -> None:
    _, hard = resource.getrlimit(kind)
    limit = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(kind, (limit, hard))
