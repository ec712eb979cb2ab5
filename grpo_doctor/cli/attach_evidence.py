"""Where the evidence of `attach` comes from: processes of this host, files, or bundles."""

from __future__ import annotations

import math
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from grpo_doctor.cli.console import Quiet, inform, put, say
from grpo_doctor.cli.output import color_wanted, terminal_width
from grpo_doctor.errors import NoJobError, PermissionNeededError, TraceError, UsageError
from grpo_doctor.hang.collection import bundle
from grpo_doctor.hang.collection.bundle import ARCHIVES, EVIDENCE
from grpo_doctor.hang.collection.examine import ExamineOptions, examine_dumps, examine_job
from grpo_doctor.hang.collection.joining import JOINS
from grpo_doctor.hang.dumps.model import DumpProblem
from grpo_doctor.hang.model import view
from grpo_doctor.hang.model.view import JobView
from grpo_doctor.hang.multihost.join import DifferentJobsError, joined
from grpo_doctor_probes import discover, look
from grpo_doctor_probes.evidence import Evidence, Job, Problem
from grpo_doctor_probes.placement import placement_of
from grpo_doctor_reports.formatting import PROSE_LIMIT, clean, seconds

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
        jobs = discover.find_jobs(pids, joins=lambda pid: look.arguments(pid, JOINS))
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
    ranks = job.ranks() or job.members
    first = ranks[0]
    count = f"{len(job.ranks())} rank{'' if len(job.ranks()) == 1 else 's'}"
    pids = ", ".join(str(member.pid) for member in ranks[:4]) + (", ..." if len(ranks) > 4 else "")
    command = clean(first.command or first.name, _COMMAND_CHARACTERS)
    age = _age(first.started_ticks)
    return f"  grpo-doctor attach {first.pid:<8} {count} (pid {pids}), since {age}: {command}"


def _age(started_ticks: int) -> str:
    up_s = time.clock_gettime(time.CLOCK_BOOTTIME)
    return seconds(max(0.0, up_s - started_ticks / os.sysconf("SC_CLK_TCK")))


_MOST_NAMED = 40
_SAID_FROM_MB, _MB_PER_S = 50.0, 8.0
_FILE = "file:"


def dumped(folder: Path) -> JobView:
    """Return the job that the dump files of `folder`, or this one file, show.

    Raises:
        UsageError: there is no such folder, or no file in it is a dump.
        NoJobError: the folder is empty.
    """
    if not folder.exists():
        raise UsageError(
            f"--dumps {folder}: there is no such folder. Give the folder of the job's dumps "
            "(TORCH_FR_DUMP_TEMP_FILE without the file name)."
        )
    evidence = examine_dumps(folder)
    if not evidence.dumps:
        raise NoJobError(
            f"--dumps {folder}: no flight-recorder file in it. Torch writes these files if "
            "TORCH_NCCL_DUMP_ON_TIMEOUT=1 and TORCH_FR_BUFFER_SIZE=2000 are set."
        )
    _tell_of_a_wait(evidence)
    job_view = view.build(evidence)
    if not job_view.recordings.ranks:
        raise UsageError(_nothing_usable(folder, job_view.recordings.problems))
    return job_view


def _tell_of_a_wait(evidence: Evidence) -> None:
    """Print the expected time of a long read: recorders of a thousand ranks take minutes."""
    megabytes = sum(len(dump.data) for dump in evidence.dumps) / 1e6
    if megabytes >= _SAID_FROM_MB:
        wait_s = math.ceil(megabytes / _MB_PER_S)
        inform(f"reading {len(evidence.dumps):,} dumps, {megabytes:,.0f} MB: about {wait_s} s ...")


def _nothing_usable(folder: Path, problems: tuple[DumpProblem, ...]) -> str:
    if any(problem.source.endswith((EVIDENCE, *ARCHIVES)) for problem in problems):
        return f"--dumps {folder}: that is a bundle of attach. Give it to --replay."
    lines = [f"--dumps {folder}: no file there is a usable flight-recorder dump."]
    lines += [f"  {_line_dumped(problem)}" for problem in problems[:_MOST_NAMED]]
    if len(problems) > _MOST_NAMED:
        lines.append(f"  and {len(problems) - _MOST_NAMED} more")
    return "\n".join(lines)


def _line_dumped(problem: DumpProblem) -> str:
    file = problem.source.removeprefix(_FILE)
    return clean(problem.what if file in problem.what else f"{file} {problem.what}", PROSE_LIMIT)


def replayed(paths: Sequence[Path]) -> Evidence:
    """What these bundles hold. Of several those that can't be read are named, the rest is used.

    Raises:
        UsageError: none of them can be read, or they are of different jobs.
    """
    bundles: list[Evidence] = []
    problems: list[str] = []
    for path in bundle.bundles_in(paths):
        try:
            bundles.append(bundle.read(path))
        except TraceError as problem:
            problems.append(str(problem))
    if not bundles:
        raise UsageError("\n".join(problems))
    try:
        evidence = joined(bundles)
    except DifferentJobsError as problem:
        raise UsageError(str(problem)) from problem
    for line in problems:
        say(line)
    unread = tuple(Problem(line, "Its host's ranks are not in this verdict.") for line in problems)
    return replace(evidence, problems=(*evidence.problems, *sorted(unread, key=lambda p: p.what)))
