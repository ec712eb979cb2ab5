"""Whether the kernel killed a process for memory: the control group's counter, the kernel's log."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

from grpo_doctor_probes.procs.cgroups import VERSION_2, control_groups, field_in
from grpo_doctor_probes.procs.kmsg import KMSG, parse_record, records

# A process number of an hour ago may be another process's now.
_LATELY_S = 60.0
_OOM_KILLS = "oom_kill"


class OomCounters:
    """How often the kernel killed for memory in the groups of some processes.

    Formats: cgroup-v2.rst (`memory.events`), cgroup-v1/memory.rst (`memory.oom_control`).
    """

    def __init__(self, proc: Path = Path("/proc"), sys: Path = Path("/sys")) -> None:
        self._proc, self._mount = proc, sys / "fs/cgroup"
        self._file_of: dict[int, Path] = {}
        self._count: dict[Path, int] = {}

    def note(self, pid: int) -> None:
        """Remembers where `pid` lives and what is counted there by now."""
        file = _counting_file(pid, self._proc, self._mount)
        if file is not None:
            self._file_of[pid] = file
            self._count.setdefault(file, field_in(file, _OOM_KILLS))

    def grown(self, pid: int) -> int:
        """Return how many kills its group counts that were not there at the previous look."""
        file = self._file_of.pop(pid, None)
        if file is None:
            return 0
        before, self._count[file] = self._count[file], field_in(file, _OOM_KILLS)
        return max(0, self._count[file] - before)


def kernel_line(pid: int, kmsg: Path = KMSG) -> str:
    """The kernel's line about killing `pid` lately; empty without one or without the right."""
    line = ""
    with contextlib.suppress(OSError):
        for record in records(kmsg):
            line = _about(record, pid) or line
    return line


def _about(record: bytes, pid: int) -> str:
    if f"illed process {pid} ".encode() not in record or (parsed := parse_record(record)) is None:
        return ""
    at_s, text = parsed
    return text.decode("utf-8", "replace") if time.monotonic() - at_s <= _LATELY_S else ""


def _counting_file(pid: int, proc: Path, mount: Path) -> Path | None:
    groups = control_groups(pid, proc, mount)
    for controller, name in (("memory", "memory.oom_control"), (VERSION_2, "memory.events")):
        folders = groups.get(controller, [])
        for folder in (*folders[:1], *folders[-1:]):
            if (folder / name).is_file():
                return folder / name
    return None
