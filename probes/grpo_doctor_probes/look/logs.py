"""The last lines of the logs that processes of a job have open."""

from __future__ import annotations

import os
import re
import stat
import time
from functools import partial
from pathlib import Path

from grpo_doctor_probes.evidence import Job, LogTail
from grpo_doctor_probes.look.hostview import written_files
from grpo_doctor_probes.procs.bounded import within
from grpo_doctor_probes.procs.printable import printable
from grpo_doctor_probes.record.redact import redact_text

_LOOKS_LIKE = re.compile(r"\.(?:log|out|err|stdout|stderr)(?:\.\d+)?$|/logs?/[^/]+\.txt$")
_STREAMS = (1, 2)
_TAIL_BYTES = 64 << 10
_TAIL_LINES = 40
_LINE_LENGTH = 500
_MOST_LOGS = 64
_MOST_DESCRIPTORS = 1024
_AT_MOST_S = 1.0
_ALL_AT_MOST_S = 3.0
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")


def logs(job: Job, proc: Path = Path("/proc")) -> tuple[LogTail, ...]:
    """Each log once, the one written last first. Logs on a file system that hangs are left out."""
    logs: dict[str, tuple[int, int]] = {}
    for member in job.members:
        for fd, path in written_files(proc, member.pid, _MOST_DESCRIPTORS):
            if fd in _STREAMS or _LOOKS_LIKE.search(path):
                logs.setdefault(path, (member.pid, fd))
    deadline = time.monotonic() + _ALL_AT_MOST_S
    tails = []
    for path, (pid, fd) in list(logs.items())[:_MOST_LOGS]:
        left_s = min(_AT_MOST_S, deadline - time.monotonic())
        try:
            age_s, lines = within(left_s, partial(_tail, f"{proc}/{pid}/fd/{fd}"))
        except (OSError, ValueError):  # closed meanwhile, no regular file, or no answer
            continue
        tails.append(LogTail(pid, printable(path, 300), age_s, lines))
    return tuple(sorted(tails, key=lambda tail: tail.written_s_ago))


def last_lines(data: bytes) -> tuple[str, ...]:
    """The last lines of a log, fit to show: redacted, one state of a progress bar, no escapes."""
    lines = data.decode("utf-8", "replace").split("\n")
    shown = []
    for line in lines[-_TAIL_LINES - 1 :]:
        # A progress bar writes over itself: what stands behind the last carriage return is seen.
        states = [state for state in line.split("\r") if state.strip()]
        if states:
            text = _ESCAPES.sub("", states[-1]).replace("\t", "    ")
            shown.append(printable(redact_text(text), _LINE_LENGTH))
    return tuple(shown[-_TAIL_LINES:])


def _tail(path: str) -> tuple[float, tuple[str, ...]]:
    """Read through the descriptor, which also reaches into containers and deleted files."""
    if not stat.S_ISREG(os.stat(path).st_mode):  # noqa: PTH116
        raise ValueError("no regular file")
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        facts = os.fstat(descriptor)
        data = os.pread(descriptor, _TAIL_BYTES, max(0, facts.st_size - _TAIL_BYTES))
    finally:
        os.close(descriptor)
    return max(0.0, time.time() - facts.st_mtime), last_lines(data)
