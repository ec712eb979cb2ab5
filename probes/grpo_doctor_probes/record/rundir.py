"""Names inside a run directory: the only interface between a job and the tool."""

from __future__ import annotations

import errno
import os
import stat

RUN_DIR_VARIABLE = "GRPO_DOCTOR_RUN_DIR"
MAX_MB_VARIABLE = "GRPO_DOCTOR_MAX_MB"
# "1": watch the imports of every Python of the job, and time phases of frameworks.
HOOKS_VARIABLE = "GRPO_DOCTOR"

RUN_JSON = "run.json"
JOB_JSON = "job.json"
METRICS_JSONL = "metrics.jsonl"
# Errors that ended a Python of the job; its processes that the hooks did not get into.
ERRORS_JSONL = "errors.jsonl"
UNHOOKED_JSONL = "unhooked.jsonl"
TRACE_JSON = "trace.json"
FINDINGS_JSON = "findings.json"
REPORT_HTML = "report.html"
RANKS = "ranks"
HOSTS = "hosts"
FLIGHT = "flight"
# Run directories of the servers that `run --join` started, within the run's.
JOINED = "joined"
# Run directories of the other hosts of a job, within that of its first host.
NODES = "nodes"
SPANS_SUFFIX = ".spans"
TRAJECTORIES_SUFFIX = ".trajectories"
SAMPLES_SUFFIX = ".samples.jsonl"
# The role of a process that carries the steps of others, such as Ray actors.
DRIVER = "driver"


def make_private(folder: str) -> None:
    """Make a folder, and those above it that are missing, for the user alone.

    `mkdir(parents=True)` gives the parents what the umask allows.

    Raises:
        PermissionError: it is there, and another user owns it or everybody may write to it.
        OSError: it can't be made.
    """
    parent = os.path.dirname(os.path.abspath(folder))  # noqa: PTH100, PTH120 - no pathlib in the job
    if not os.path.isdir(parent):  # noqa: PTH112
        make_private(parent)
    try:
        os.mkdir(folder, 0o700)  # noqa: PTH102
    except FileExistsError:
        state = os.stat(folder)  # noqa: PTH116
        if not stat.S_ISDIR(state.st_mode):
            raise
        if state.st_uid not in (0, os.geteuid()):
            raise PermissionError(errno.EPERM, "it belongs to another user") from None
        if state.st_mode & stat.S_IWOTH and not state.st_mode & stat.S_ISVTX:
            raise PermissionError(errno.EPERM, "every user may write to it") from None


def rank_stem(rank: int, role: str | None = None) -> str:
    """File name stem of a rank: five digits, so that a listing is in rank order.

    Workers of a driver have their role before it: the ranks are those that carry the steps.
    """
    return f"{rank:05d}" if role in (None, DRIVER) else f"{role}-{rank:05d}"
