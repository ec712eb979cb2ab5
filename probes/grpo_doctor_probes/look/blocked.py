"""What every blocked thread of a job waits for, and who could end the wait."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from grpo_doctor_probes.evidence import Blocked
from grpo_doctor_probes.look.calls import WAITS
from grpo_doctor_probes.look.hostview import HostView
from grpo_doctor_probes.look.processes import look_at
from grpo_doctor_probes.look.scheduler import SchedulerClock
from grpo_doctor_probes.look.syscalls import call
from grpo_doctor_probes.look.waiting import Waiting

if TYPE_CHECKING:
    from collections.abc import Iterator

    from grpo_doctor_probes.evidence import Job, Look, ProcessLook, Thread

PROC = Path("/proc")
_ASLEEP = frozenset("SD")
_MOST_ROWS = 32  # of one process
_MOST_DESCENDANTS = 512


def blocked(job: Job, look: Look, proc: Path = PROC) -> tuple[Blocked, ...]:
    """Rows for the blocked threads of the job's processes and of all processes below them.

    Of helper threads only calls on descriptors, children and locks are told: they idle in futex
    and sleep by nature. One thread has several rows where it polls several descriptors.
    """
    pids = tuple(member.pid for member in job.members)
    view = HostView(proc, pids)
    clock = SchedulerClock(proc)
    below = (look_at(pid, 0, clock, proc) for pid in view.descendants(pids)[:_MOST_DESCENDANTS])
    rows: list[Blocked] = []
    for process in (*look.processes, *below):
        rows += list(_of_process(view, process))[:_MOST_ROWS]
    return tuple(rows)


def _of_process(view: HostView, process: ProcessLook) -> Iterator[Blocked]:
    if process.state in "Tt":
        return
    for thread in process.threads:
        if thread.state in _ASLEEP:
            yield from _of_thread(view, process, thread)


def _of_thread(view: HostView, process: ProcessLook, thread: Thread) -> Iterator[Blocked]:
    waiting = Waiting(view, process.pid, thread, is_main=thread.tid == process.pid)
    known = call(thread.syscall)
    if known is not None:
        for row in WAITS[known.waits](waiting, known):
            yield row if row.note else replace(row, note=known.name)
    elif thread.state == "D":
        where = f"in the kernel function {thread.wchan}" if thread.wchan else "in the kernel"
        yield waiting.row("other", note=f"uninterruptible sleep {where}")
