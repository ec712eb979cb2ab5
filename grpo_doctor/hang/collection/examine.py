"""Looking at a live job, or at dump files alone, until there is enough to reason about.

Always take two samples; then collect what the diagnosis asks for (`hang.wants`), such as flight
recorders where both samples show a rank that makes no progress.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from grpo_doctor.hang.collection.recordings import ask_ras, ask_recorders, read_memory
from grpo_doctor.hang.collection.spinning import look_closer
from grpo_doctor.hang.collection.visit import Visit
from grpo_doctor.hang.wants import Request, What, wants, wants_explained, wants_native
from grpo_doctor_probes import flight, look
from grpo_doctor_probes.evidence import CallArguments, Cost, Evidence, Job, Problem

STACKS_S = 6.0  # py-spy takes 10 ms a process, a second when 64 of them share two cores
NATIVE_S = 3.0
MOST_NATIVE = 1
ASKED_S = 4.0  # for the memory of all ranks that only ask


@dataclass(frozen=True, slots=True)
class ExamineOptions:
    """How to look. `stop`: threads may be stopped for as long as it takes to read where they are.

    `seconds_between` two samples; the visit ends after about `at_most_s` whatever is outstanding.
    """

    stop: bool = True
    seconds_between: float = 1.2
    at_most_s: float = 60.0


def examine_job(job: Job, options: ExamineOptions, progress: Callable[[str], None]) -> Evidence:
    """Examine one job. Ctrl-C ends the visit with what was seen so far, and a problem says so;
    before the first sample there is nothing to reason about."""
    visit = Visit(_with_fronts(job))
    try:
        _two_looks(visit, options, progress)
        look_closer(visit, progress, stop=options.stop, wait_s=options.seconds_between)
        _closer(visit, options, progress)
    except KeyboardInterrupt:
        if not visit.looks:
            raise
        visit.problems.append(
            Problem(
                "The inspection was interrupted; the verdict uses what was collected until then."
            )
        )
    return visit.evidence()


def _with_fronts(job: Job) -> Job:
    """The process that started an engine answers for it, so that its /metrics are asked."""
    fronts = {member.parent for member in job.members if member.role == "engine"}
    members = tuple(
        replace(member, role="server")
        if member.pid in fronts and member.role in ("helper", "reward")
        else member
        for member in job.members
    )
    return replace(job, members=members)


def examine_dumps(folder: Path) -> Evidence:
    """What flight-recorder files alone show. `folder` may be one file."""
    began = time.monotonic()
    dumps = flight.dump_files([folder])
    newest = max((dump.at_unix_ns for dump in dumps), default=0)
    return Evidence(
        job=Job(host=socket.gethostname(), members=()),
        taken_unix_ns=newest or time.time_ns(),
        dumps=dumps,
        cost=Cost(seconds=time.monotonic() - began),
    )


def _two_looks(visit: Visit, options: ExamineOptions, progress: Callable[[str], None]) -> None:
    progress(f"inspecting {_ranks_text(len(visit.job.ranks()))}")
    with ThreadPoolExecutor(max_workers=6) as pool:
        first = time.monotonic()
        _look(visit)
        beside = pool.submit(_surroundings, visit)
        pause_s = options.seconds_between - (time.monotonic() - first)
        if pause_s > 0:
            progress(f"second sample in {pause_s:.1f} s")
            with visit.part("pause"):
                time.sleep(pause_s)
        _look(visit)
        gpus, engines = pool.submit(look.gpus, visit.job), pool.submit(look.engines, visit.job)
        with visit.part("blocked"):
            visit.blocked = look.blocked(visit.job, visit.looks[-1])
        visit.gpus.append(gpus.result())
        visit.engines.append(engines.result())
        beside.result()


def _ranks_text(count: int) -> str:
    if count == 0:
        return "a job without a rank on this host"
    return "1 rank" if count == 1 else f"{count} ranks"


def _look(visit: Visit) -> None:
    pids = [member.pid for member in visit.job.members if member.role != "launcher"]
    with visit.part("looks"):
        visit.looks.append(look.processes(visit.job))
    with visit.part("limits"):
        visit.limits.append(look.limits(visit.job))
    with visit.part("stacks"):
        if not visit.stacks:
            visit.stacks.append(look.stacks(pids, at_most_s=STACKS_S))
            return
        earlier, before, after = visit.stacks[-1], visit.looks[-2], visit.looks[-1]
        visit.stacks.append(look.stacks_again(earlier, before, after, at_most_s=STACKS_S))


def _surroundings(visit: Visit) -> None:
    """What does not need to be looked at twice, while the time between the looks passes."""
    with visit.part("surroundings"):
        visit.gpus.append(look.gpus(visit.job))
        visit.engines.append(look.engines(visit.job))
        visit.host = look.host(visit.job)
        visit.logs = look.logs(visit.job)
        visit.spans = look.open_spans(visit.job)


def _closer(visit: Visit, options: ExamineOptions, progress: Callable[[str], None]) -> None:
    """Collect what the diagnosis asks for, until it asks for nothing more."""
    answered: set[What] = set()
    while requests := wants(visit.evidence(), answered):
        for request in requests:
            if not _collect(visit, request, options, progress) or request.what != "sample":
                answered.add(request.what)
    if "recorders" not in answered:
        return
    for request in wants_explained(visit.evidence()):
        _collect(visit, request, options, progress)
    for request in [*wants_native(visit.evidence())][:MOST_NATIVE]:
        _collect(visit, request, options, progress)


def _collect(
    visit: Visit, request: Request, options: ExamineOptions, progress: Callable[[str], None]
) -> bool:
    """Answer a request; return whether there was time for it."""
    pid, left_s = request.pid, options.at_most_s - visit.seconds()
    if request.what == "sample":
        return _look_again(visit, options, progress)
    if request.what == "native":
        return _native(visit, request, options, progress)
    if request.what in ("memory", "recorders", "ras", "coroutines"):
        with visit.part("coroutines" if request.what == "coroutines" else "recorders"):
            if request.what == "coroutines":
                rows, ends = look.awaits(request.loops)
                visit.awaits += rows
                visit.blocked = (*visit.blocked, *ends)
            elif request.what == "memory":
                read_memory(visit, at_most_s=ASKED_S)
            elif request.what == "ras":
                ask_ras(visit)
            else:
                progress("reading the flight recorders")
                ask_recorders(visit, at_most_s=max(left_s, 1.0))
        return True
    if pid is None:
        return False
    with visit.part("arguments"):
        arguments = look.arguments(pid, request.functions)
        if request.what == "variables":
            visit.arguments += [CallArguments(pid, *call) for call in arguments.items()]
            return True
        path = next((values["path"] for values in arguments.values() if "path" in values), "")
        if path:
            visit.blocked = (look.lock_file(pid, path), *visit.blocked)
    return True


def _look_again(visit: Visit, options: ExamineOptions, progress: Callable[[str], None]) -> bool:
    if visit.seconds() + options.seconds_between >= options.at_most_s:
        return False
    progress(f"another sample in {options.seconds_between:.1f} s")
    with visit.part("pause"):
        time.sleep(options.seconds_between)
    _look(visit)
    visit.blocked = look.blocked(visit.job, visit.looks[-1])
    return True


def _native(
    visit: Visit, request: Request, options: ExamineOptions, progress: Callable[[str], None]
) -> bool:
    """Read the C and C++ frames of a rank, which stops it for about a second."""
    late = visit.seconds() + NATIVE_S > options.at_most_s
    if request.pid is None or late or not options.stop:
        return False
    progress("reading the C++ frames of an unexplained rank")
    with visit.part("native"):
        visit.stacks[-1] += look.native_stacks([request.pid], at_most_s=NATIVE_S)
    return True
