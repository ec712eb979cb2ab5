"""Looking at a live job, or at dump files alone, until there is enough to reason about.

Always take two samples; then collect what the diagnosis asks for (`hang.wants`), such as flight
recorders where both samples show a rank that makes no progress.
"""

from __future__ import annotations

import socket
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock
from typing import Any

from grpo_doctor.hang.collection.joining import JOINS, joining, settled
from grpo_doctor.hang.model.process.proc import index
from grpo_doctor.hang.wants import Request, What, wants, wants_explained, wants_native
from grpo_doctor_probes import flight, look
from grpo_doctor_probes.evidence import (
    CallArguments,
    Cost,
    Evidence,
    FlightDump,
    Job,
    Problem,
    Stack,
)

STACKS_S = 6.0  # py-spy takes 10 ms a process, a second when 64 of them share two cores
NATIVE_S = 3.0
MOST_NATIVE = 1
ASKED_S = 4.0  # for the memory of all ranks that only ask

READ_S = 2.0  # for the memory of one rank
SLACK_NS = 2_000_000_000  # a dump may be written while the last ranks still arrive
# A host that spins has just run, however long it has spun. What torch writes at a time-out (after
# 10 minutes under NCCL) of a job that goes on is seldom that young.
SPUN_NS = 1_800_000_000_000
MOST_DIGESTS = 16  # processes; one takes 20 ms of a core
BETWEEN_S = 0.5  # most steps of a training loop come back to a line within that
POSITIONS_S = 1.0
DIGESTS_S = 2.0
_ASKED = ("rank", "engine", "engine-worker")
_AT_ONE_LINE = ("busy", "spinning", "still", "polling")


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
        if not visit.seen.looks:
            raise
        text = "The inspection was interrupted; the verdict uses what was collected until then."
        visit.add(problems=[Problem(text)])
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
    count = len(visit.job.ranks())
    ranks = f"{count} rank{'s' if count > 1 else ''}"
    progress(f"inspecting {ranks if count else 'a job without a rank on this host'}")
    with ThreadPoolExecutor(max_workers=6) as pool:
        first = time.monotonic()
        _look(visit)
        _settle(visit)
        beside = pool.submit(_surroundings, visit)
        pause_s = options.seconds_between - (time.monotonic() - first)
        if pause_s > 0:
            progress(f"second sample in {pause_s:.1f} s")
            time.sleep(pause_s)
        _look(visit)
        gpus, engines = pool.submit(look.gpus, visit.job), pool.submit(look.engines, visit.job)
        visit.put(blocked=look.blocked(visit.job, visit.seen.looks[-1]))
        visit.add(gpus=[gpus.result()], engines=[engines.result()])
        beside.result()


def _settle(visit: Visit) -> None:
    """Finds out who the ranks are where processes that join know it better than their start."""
    for pid in joining(visit.evidence()):
        _ask_arguments(visit, pid, JOINS)
    if visit.seen.arguments:
        visit.job = settled(visit.evidence())
        visit.put(job=visit.job)


def _ask_arguments(visit: Visit, pid: int, functions: frozenset[str]) -> None:
    calls = look.arguments(pid, functions).items()
    visit.add(arguments=[CallArguments(pid, *call) for call in calls])


def _look(visit: Visit) -> None:
    pids = [member.pid for member in visit.job.members if member.role != "launcher"]
    visit.add(looks=[look.processes(visit.job)])
    visit.add(limits=[look.limits(visit.job)])
    if not visit.seen.stacks:
        stacks = look.stacks(pids, at_most_s=STACKS_S)
    else:
        before, after = visit.seen.looks[-2:]
        stacks = look.stacks_again(visit.seen.stacks[-1], before, after, at_most_s=STACKS_S)
    visit.add(stacks=[stacks])


def _surroundings(visit: Visit) -> None:
    """What does not need to be looked at twice, while the time between the looks passes."""
    job = visit.job
    visit.add(gpus=[look.gpus(job)], engines=[look.engines(job)])
    visit.put(host=look.host(job), logs=look.logs(job), spans=look.open_spans(job))


def _closer(visit: Visit, options: ExamineOptions, progress: Callable[[str], None]) -> None:
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
    if request.what == "coroutines":
        rows, ends = look.awaits(request.loops)
        visit.add(awaits=rows, blocked=ends)
    elif request.what == "memory":
        read_memory(visit, at_most_s=ASKED_S)
    elif request.what == "recorders":
        progress("reading the flight recorders")
        ask_recorders(visit, at_most_s=max(left_s, 1.0))
    elif pid is None:
        return False
    elif request.what == "variables":
        _ask_arguments(visit, pid, request.functions)
    else:
        calls = look.arguments(pid, request.functions).values()
        path = next((values["path"] for values in calls if "path" in values), "")
        if path:
            visit.put(blocked=(look.lock_file(pid, path), *visit.seen.blocked))
    return True


def _look_again(visit: Visit, options: ExamineOptions, progress: Callable[[str], None]) -> bool:
    if visit.seconds() + options.seconds_between >= options.at_most_s:
        return False
    progress(f"another sample in {options.seconds_between:.1f} s")
    time.sleep(options.seconds_between)
    _look(visit)
    visit.put(blocked=look.blocked(visit.job, visit.seen.looks[-1]))
    return True


def _native(
    visit: Visit, request: Request, options: ExamineOptions, progress: Callable[[str], None]
) -> bool:
    late = visit.seconds() + NATIVE_S > options.at_most_s
    if request.pid is None or late or not options.stop:
        return False
    progress("reading the C++ frames of an unexplained rank")
    *earlier, last = visit.seen.stacks
    native = look.native_stacks([request.pid], at_most_s=NATIVE_S)
    visit.put(stacks=(*earlier, (*last, *native)))
    return True


# Ranks that use a core at one line: do they compute, or wait for their device?


def look_closer(
    visit: Visit, progress: Callable[[str], None], *, stop: bool, wait_s: float
) -> None:
    """Fills in `positions` and `locals_seen`. `stop`: threads may be stopped for 50 us; `wait_s` is
    how long a host that still seems to spin is given to come back to its line.
    """
    observed = index(visit.evidence())
    asked = [member.pid for member in visit.job.members if member.role in _ASKED]
    # Or a rank sleeps while a thread of a library uses a core: NCCL's, or one that works.
    beneath = any(observed[pid].activity.library_works for pid in asked)
    if not _pids(visit, "busy", "spinning") and not beneath:
        return
    progress("sampling ranks that use a core at one line")
    if stop:
        pids = set(_pids(visit, *_AT_ONE_LINE))
        before, after = (
            replace(full, processes=tuple(p for p in full.processes if p.pid in pids))
            for full in visit.seen.looks[-2:]
        )
        visit.add(positions=look.positions(before, after, at_most_s=POSITIONS_S))
    began = time.monotonic()
    spinning = _pids(visit, "spinning")[:MOST_DIGESTS]
    _digest(visit, spinning)
    for pause_s in (BETWEEN_S, wait_s):
        unresolved = [pid for pid in _pids(visit, "spinning") if pid in spinning]
        if not unresolved:
            return
        time.sleep(max(0.0, pause_s - (time.monotonic() - began)))
        _digest(visit, unresolved)


def _pids(visit: Visit, *kinds: str) -> list[int]:
    observed = index(visit.evidence())
    chosen = [member.pid for member in visit.job.members if member.role in _ASKED]
    return [pid for pid in chosen if pid in observed and observed[pid].activity.kind in kinds]


def _digest(visit: Visit, pids: list[int]) -> None:
    if pids:
        visit.add(locals_seen=look.locals_digests(pids, at_most_s=DIGESTS_S))


# The flight recorders of a job that seems to stand, the gentlest way first.


def ask_recorders(visit: Visit, *, at_most_s: float) -> None:
    """Files written since the job stands, and the memory of each rank that wrote none."""
    until = time.monotonic() + at_most_s
    since = time.time_ns() - _stood_ns(visit) - SLACK_NS
    files = flight.dump_files(flight.known_dump_files(visit.job))
    visit.add(dumps=[dump for dump in files if dump.at_unix_ns >= since and dump.data])
    read_memory(visit, at_most_s=until - time.monotonic())


def _stood_ns(visit: Visit) -> int:
    observed, ranks = index(visit.evidence()), visit.job.ranks()
    kinds = {observed[member.pid].activity.kind for member in ranks if member.pid in observed}
    ages = [SPUN_NS if "spinning" in kinds and "working" not in kinds else 0]
    for member in ranks:
        process = visit.seen.looks[-1].of(member.pid)
        if process is not None and process.threads and process.threads[0].last_ran_ns:
            ages.append(process.at_ns - process.threads[0].last_ran_ns)
    return max(ages)


def read_memory(visit: Visit, *, at_most_s: float) -> None:
    """The recorders of ranks of which none has been read, from memory alone."""
    until = time.monotonic() + at_most_s
    heard = {dump.rank for dump in visit.seen.dumps if dump.data} - {None}
    pids = {dump.pid for dump in visit.seen.dumps if dump.data}
    for member in visit.job.ranks():
        process = visit.seen.looks[-1].of(member.pid)
        if member.pid in pids or member.rank in heard:
            continue
        if process is None or process.state in ("Z", "X"):
            continue
        remaining_s = until - time.monotonic()
        if remaining_s <= 0.05:
            problem = "there was no time left to read this rank's flight recorder"
            visit.add(dumps=[FlightDump("memory", member.rank, member.pid, problem=problem)])
            continue
        visit.add(dumps=flight.read_recorders(member, at_most_s=min(READ_S, remaining_s)))


_NO_PYTHON = "Failed to find python version"  # py-spy 0.4


@dataclass
class Visit:
    """Collects; `evidence()` may be asked at any time, as after Ctrl-C."""

    job: Job
    began_ns: int = field(default_factory=time.monotonic_ns)
    taken_unix_ns: int = field(default_factory=time.time_ns)

    def __post_init__(self) -> None:
        self.seen = Evidence(self.job, self.taken_unix_ns)
        self._lock = Lock()  # what surrounds the job is collected in a thread

    def put(self, **fields: Any) -> None:
        """Sets fields of the evidence."""
        with self._lock:
            self.seen = replace(self.seen, **fields)

    def add(self, **rows: Iterable[Any]) -> None:
        """Adds rows to fields of the evidence."""
        with self._lock:
            more: dict[str, Any] = {
                name: (*getattr(self.seen, name), *new) for name, new in rows.items()
            }
            self.seen = replace(self.seen, **more)

    def seconds(self) -> float:
        """Since the visit began."""
        return (time.monotonic_ns() - self.began_ns) / 1e9

    def evidence(self) -> Evidence:
        """All of it, as it is now."""
        pauses_ms = [stack.pause_ms for look in self.seen.stacks for stack in look]
        pauses_ms += [position.pause_ms for position in self.seen.positions]
        return replace(
            self.seen,
            problems=(*self.seen.problems, *self._refused()),
            cost=Cost(self.seconds(), max(pauses_ms, default=0.0)),
        )

    def _refused(self) -> Iterator[Problem]:
        """What single records say they could not see: each text once, with the process where one
        alone says it."""
        stacks = self.seen.stacks[-1] if self.seen.stacks else ()
        records: list[Stack | FlightDump] = [s for s in stacks if not self._is_no_python(s)]
        pids_by_text: dict[str, set[int | None]] = defaultdict(set)
        for record in [*records, *self.seen.dumps]:
            if record.problem:
                pids_by_text[record.problem].add(record.pid)
        for text, pids in pids_by_text.items():
            yield Problem(text, pid=next(iter(pids)) if len(pids) == 1 else None)

    def _is_no_python(self, stack: Stack) -> bool:
        """Return whether a shell or a `sleep` that works for a rank lacks a Python stack."""
        member = self.job.member(stack.pid)
        helps = member is not None and member.role != "rank"
        return helps and _NO_PYTHON in stack.problem
