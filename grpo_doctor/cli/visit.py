"""Find the one job to inspect, and inspect it while progress is printed."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from grpo_doctor.cli.console import Quiet, inform, put
from grpo_doctor.cli.output import color_wanted, terminal_width
from grpo_doctor.errors import NoJobError, PermissionNeededError, UsageError
from grpo_doctor.hang.collection.examine import ExamineOptions, examine_job
from grpo_doctor_probes import discover
from grpo_doctor_probes.evidence import Evidence, Job
from grpo_doctor_probes.placement import placement_of

_MOST_LISTED = 20
_COMMAND_CHARACTERS = 60
_FARTHEST_START_S = 60.0


def wait_for(moment_unix_s: float | None) -> None:
    """Waits until the looks of all hosts begin; not for a clock that is far away from ours."""
    ahead_s = (moment_unix_s or 0.0) - time.time()
    if 0 < ahead_s < _FARTHEST_START_S:
        time.sleep(ahead_s)


def visit(pids: Sequence[int], *, stop: bool, seconds_between: float) -> Evidence:
    """Inspect the job of these processes, or the only job on this host.

    Raises:
        NoJobError: there is no job.
        PermissionNeededError: the job can't be read; the message has the fix.
        UsageError: there are several jobs; the message lists them.
    """
    # Some parents leave SIGCHLD ignored, and then every program that is asked seems to end well.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        jobs = discover.find_jobs(pids)
        if len(jobs) > 1:
            raise UsageError(several(jobs, named=bool(pids)))
        wishes = ExamineOptions(stop=stop, seconds_between=seconds_between)
        job = replace(jobs[0], placements=(placement_of(jobs[0]),))
        with _telling() as tell:
            return examine_job(job, wishes, tell)
    except discover.NoJobError as problem:
        raise NoJobError(str(problem)) from problem
    except discover.NoPermissionError as problem:
        raise PermissionNeededError(str(problem)) from problem


@contextmanager
def _telling() -> Iterator[Callable[[str], None]]:
    """Yield a progress printer: one erased line on a terminal, one line per message elsewhere."""
    if Quiet.wanted or not color_wanted(sys.stderr):
        yield lambda words: inform(f"{words} ...")
        return
    room = terminal_width() - 1
    try:
        yield lambda words: put(f"grpo-doctor: {words} ..."[:room], over=True)
    finally:
        put("", over=True)


def several(jobs: Sequence[Job], *, named: bool = False) -> str:
    """A list of jobs with the command for each; `named`: the user gave processes."""
    relation = "belong to the given processes" if named else "run here"
    lines = [f"{len(jobs)} jobs {relation}; choose one:"]
    lines += [_line(job) for job in jobs[:_MOST_LISTED]]
    if len(jobs) > _MOST_LISTED:
        lines.append(f"  and {len(jobs) - _MOST_LISTED} more")
    return "\n".join(lines)


def _line(job: Job) -> str:
    from grpo_doctor_reports.formatting import clean  # noqa: PLC0415 - 0.2 s, here alone

    ranks = job.ranks() or job.members
    first = ranks[0]
    count = f"{len(job.ranks())} rank{'' if len(job.ranks()) == 1 else 's'}"
    pids = ", ".join(str(member.pid) for member in ranks[:4]) + (", ..." if len(ranks) > 4 else "")
    command = clean(first.command or first.name, _COMMAND_CHARACTERS)
    age = _age(first.started_ticks)
    return f"  grpo-doctor attach {first.pid:<8} {count} (pid {pids}), since {age}: {command}"


def _age(started_ticks: int) -> str:
    from grpo_doctor_reports.formatting import seconds  # noqa: PLC0415

    up_s = time.clock_gettime(time.CLOCK_BOOTTIME)
    return seconds(max(0.0, up_s - started_ticks / os.sysconf("SC_CLK_TCK")))
