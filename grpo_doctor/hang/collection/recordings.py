"""Getting the flight recorders' contents of a job that seems to stand, the gentlest way first."""

from __future__ import annotations

import time

from grpo_doctor.hang.collection.visit import Visit
from grpo_doctor.hang.model.process.proc import index
from grpo_doctor_probes import flight
from grpo_doctor_probes.evidence import FlightDump

READ_S = 2.0  # for the memory of one rank
RAS_S = 6.0  # with a lost process NCCL itself waits for seconds; without NCCL there is no answer
SLACK_NS = 2_000_000_000  # a dump may be written while the last ranks still arrive
# A host that spins has just run, however long it has spun. What torch writes at a time-out (after
# 10 minutes under NCCL) of a job that goes on is seldom that young.
SPUN_NS = 1_800_000_000_000


def ask_recorders(visit: Visit, *, at_most_s: float) -> None:
    """Files written since the job stands, and the memory of each rank that wrote none."""
    until = time.monotonic() + at_most_s
    ask_ras(visit, min(RAS_S, at_most_s))
    since = time.time_ns() - _stood_ns(visit) - SLACK_NS
    files = flight.dump_files(flight.known_dump_files(visit.job))
    visit.dumps += [dump for dump in files if dump.at_unix_ns >= since and dump.data]
    read_memory(visit, at_most_s=until - time.monotonic())


def ask_ras(visit: Visit, at_most_s: float = RAS_S) -> None:
    """What NCCL knows of its ranks by itself, once in a visit."""
    if not visit.ras:
        visit.ras = flight.ras(visit.job, at_most_s)


def _stood_ns(visit: Visit) -> int:
    """For how long the rank that stands longest may have stood."""
    observed, ranks = index(visit.evidence()), visit.job.ranks()
    kinds = {observed[member.pid].activity.kind for member in ranks if member.pid in observed}
    ages = [SPUN_NS if "spinning" in kinds and "working" not in kinds else 0]
    for member in ranks:
        process = visit.looks[-1].of(member.pid)
        if process is not None and process.threads and process.threads[0].last_ran_ns:
            ages.append(process.at_ns - process.threads[0].last_ran_ns)
    return max(ages)


def _open(visit: Visit) -> set[int]:
    """The ranks' processes that nothing was heard of yet."""
    heard = {dump.rank for dump in visit.dumps if dump.data} - {None}
    pids = {dump.pid for dump in visit.dumps if dump.data}
    return {m.pid for m in visit.job.ranks() if m.pid not in pids and m.rank not in heard}


def read_memory(visit: Visit, *, at_most_s: float) -> None:
    """The recorders of ranks of which none has been read, from memory alone."""
    waiting, until = _open(visit), time.monotonic() + at_most_s
    for member in visit.job.ranks():
        process = visit.looks[-1].of(member.pid)
        if member.pid not in waiting or process is None or process.state in ("Z", "X"):
            continue
        remaining_s = until - time.monotonic()
        if remaining_s <= 0.05:
            problem = "there was no time left to read this rank's flight recorder"
            visit.dumps.append(FlightDump("memory", member.rank, member.pid, problem=problem))
            continue
        visit.dumps += flight.read_recorders(member, at_most_s=min(READ_S, remaining_s))
