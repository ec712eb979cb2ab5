"""How much longer counted work will take: by the progress bars in the job's logs."""

from __future__ import annotations

import re
from collections.abc import Sequence

from grpo_doctor.hang.model.process.known_code import Purpose
from grpo_doctor_probes.evidence import LogTail

# tqdm: `45%|####5     | 9/20 [00:30<00:37,  3.4s/it]`; `?` instead of a time before the first.
_BAR = re.compile(r"\d{1,12}/\d{1,12} \[[\d:]{1,12}<((?:\d{1,4}:){1,2}\d{2})[,\]]")
# What shows a bar of its own. In others the last bar in the log is that of the whole training.
_COUNTED: frozenset[Purpose] = frozenset({"evaluate", "generate", "load", "download"})
FRESH_S = 30.0  # a bar that was written earlier is of work that is done, or that stands


def seconds_left(pid: int, purpose: Purpose | None, logs: Sequence[LogTail]) -> float | None:
    """Seconds until a process's work is done, by the last bar in its log; None without a bar."""
    if purpose not in _COUNTED:
        return None
    own = [log for log in logs if log.pid == pid and log.written_s_ago <= FRESH_S]
    newest = min(own, key=lambda log: log.written_s_ago, default=None)
    return bar_seconds(newest.lines) if newest is not None else None


def bar_seconds(lines: Sequence[str]) -> float | None:
    """The time that the last progress bar says is left, in seconds."""
    found = [match for line in lines for match in _BAR.findall(line)]
    if not found:
        return None
    seconds = 0.0
    for part in found[-1].split(":"):
        seconds = seconds * 60 + int(part)
    return seconds
