"""Looking at a live job, or at dump files alone, until there is enough to reason about.

Always take two samples. Ask flight recorders only where both show a rank that makes no progress,
and take a third sample where it is still open whether a rank works.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from grpo_doctor.hang.collection.recordings import ask_ras, ask_recorders, read_memory
from grpo_doctor.hang.collection.spinning import look_closer
from grpo_doctor.hang.collection.visit import Visit
from grpo_doctor.hang.decision.stall import stall_of
from grpo_doctor.hang.diagnose import diagnose
from grpo_doctor.hang.model import view
from grpo_doctor.hang.model.process.proc import Process
from grpo_doctor.hang.model.process.stacks import short
from grpo_doctor.hang.model.view import JobView
from grpo_doctor.hang.model.waiting import polls
from grpo_doctor_probes import flight, look
from grpo_doctor_probes.evidence import CallArguments, Cost, Evidence, Job, Problem

STACKS_S = 6.0  # py-spy takes 10 ms a process, a second when 64 of them share two cores
NATIVE_S = 3.0
ASKED_S = 4.0  # for the memory of all ranks that only ask
TRIES_LOCK = frozenset({"acquire", "_acquire", "_poll_until_acquired"})
P2P = frozenset({"send", "recv", "isend", "irecv", "send_object_list", "recv_object_list"})
ROOTED = frozenset(
    {"broadcast", "reduce", "gather", "scatter", "gather_object"}
    | {"broadcast_object_list", "scatter_object_list"}
)
CREATING = frozenset({"new_group", "new_subgroups", "split_group"})
CREATES = frozenset({"_new_process_group_helper", "_new_group_with_tag"})
MOST_ROOTED = 8
MOST_CREATING = 16
MOST_NATIVE = 1
MOST_LOOKS = 4


@dataclass(frozen=True, slots=True)
class ExamineOptions:
    """How to look. `stop`: threads may be stopped for as long as it takes to read where they are.

    `seconds_between` two samples; the visit ends after about `at_most_s` whatever is outstanding.
    """

    stop: bool = True
    seconds_between: float = 1.2
    at_most_s: float = 60.0


def examine_job(job: Job, wishes: ExamineOptions, progress: Callable[[str], None]) -> Evidence:
    """Examine one job. Ctrl-C ends the visit with what was seen so far, and a problem says so;
    before the first sample there is nothing to reason about."""
    visit = Visit(_with_fronts(job))
    try:
        _two_looks(visit, wishes, progress)
        look_closer(visit, progress, stop=wishes.stop, wait_s=wishes.seconds_between)
        _closer(visit, wishes, progress)
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


def _two_looks(visit: Visit, wishes: ExamineOptions, progress: Callable[[str], None]) -> None:
    progress(f"inspecting {_ranks_text(len(visit.job.ranks()))}")
    with ThreadPoolExecutor(max_workers=6) as pool:
        first = time.monotonic()
        _look(visit)
        beside = pool.submit(_surroundings, visit)
        pause_s = wishes.seconds_between - (time.monotonic() - first)
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


def _closer(visit: Visit, wishes: ExamineOptions, progress: Callable[[str], None]) -> None:
    """What only a job that seems to stand is asked."""
    _until_it_moves(visit, wishes, progress)
    view_now = view.build(visit.evidence())
    with visit.part("arguments"):
        _asked_for(visit, view_now)
    if polls.all_ask(view_now):
        with visit.part("recorders"):
            read_memory(visit, at_most_s=ASKED_S)
        view_now = view.build(visit.evidence())
    stall = stall_of(view_now)
    if not any(proc.activity.progressed for proc in view_now.by_rank.values()):
        with visit.part("recorders"):
            ask_ras(visit)
    if not stall.stalled:
        return
    remaining_s = max(wishes.at_most_s - visit.seconds(), 1.0)
    progress("reading the flight recorders")
    with visit.part("recorders"):
        ask_recorders(visit, at_most_s=remaining_s)
    with visit.part("arguments"):
        _arguments(visit)
    spinning = [proc for proc in view_now.by_rank.values() if proc.device_wait]
    _third_look(visit, [*stall.suspects, *spinning], wishes, progress)
    with visit.part("arguments"):
        _lock_files(visit)
    _native(visit, wishes, progress)


def _third_look(
    visit: Visit, procs: Sequence[Process], wishes: ExamineOptions, progress: Callable[[str], None]
) -> None:
    """Take a third sample: two may meet a loop at the same line by chance; three hardly do. That a
    host that spins stayed at its line is known of the visit alone.
    """
    unclear = any(proc.activity.kind in ("busy", "polling") or proc.device_wait for proc in procs)
    if unclear:
        _look_again(visit, wishes, progress)


def _until_it_moves(visit: Visit, wishes: ExamineOptions, progress: Callable[[str], None]) -> None:
    """Sample again where nothing moved between two samples and nothing waits for long: a step may
    sleep for that long, and more samples show whether it moves.
    """
    while len(visit.looks) < MOST_LOOKS:
        verdict = diagnose(visit.evidence()).verdict
        if (
            verdict.state != "slow"
            or verdict.cause
            or stall_of(view.build(visit.evidence())).stalled
        ):
            return
        if not _look_again(visit, wishes, progress):
            return


def _look_again(visit: Visit, wishes: ExamineOptions, progress: Callable[[str], None]) -> bool:
    if visit.seconds() + wishes.seconds_between >= wishes.at_most_s:
        return False
    progress(f"another sample in {wishes.seconds_between:.1f} s")
    with visit.part("pause"):
        time.sleep(wishes.seconds_between)
    _look(visit)
    visit.blocked = look.blocked(visit.job, visit.looks[-1])
    return True


def _native(visit: Visit, wishes: ExamineOptions, progress: Callable[[str], None]) -> None:
    """C and C++ frames of ranks that nothing else explains. This stops them for about a second."""
    if not wishes.stop or visit.seconds() + NATIVE_S > wishes.at_most_s:
        return
    pids = unexplained(visit.evidence())[:MOST_NATIVE]
    if not pids:
        return  # nobody, or all that is named is on other hosts
    progress("reading the C++ frames of an unexplained rank")
    with visit.part("native"):
        visit.stacks[-1] += look.native_stacks(pids, at_most_s=NATIVE_S)


def unexplained(evidence: Evidence) -> list[int]:
    """Return processes of ranks where only native frames can show what they wait for."""
    verdict, ranks = diagnose(evidence).verdict, view.build(evidence).by_rank
    procs = [ranks[rank] for rank in verdict.culprits or tuple(ranks) if rank in ranks]
    if verdict.cause != "unknown":
        procs = [proc for proc in procs if proc.waits_in_c] if verdict.culprits else []
    return [proc.pid for proc in procs]


def _lock_files(visit: Visit) -> None:
    """The files of locks that libraries try again and again, and who has them."""
    for proc in view.build(visit.evidence()).by_rank.values():
        if proc.place.call != "file-lock" or proc.cannot_run:
            continue
        values = look.arguments(proc.pid, TRIES_LOCK).values()
        path = next((item["path"] for item in values if "path" in item), "")
        if path:
            visit.blocked = (look.lock_file(proc.pid, path), *visit.blocked)


def _asked_for(visit: Visit, view_now: JobView) -> None:
    """The paths in variables of the user's own lines that ask, sleep and ask again."""
    asking = filter(polls.asks_again, view_now.by_rank.values())
    for proc in list(asking)[:MOST_ROOTED]:
        own = frozenset({short(proc.place.frames[0].function)})
        for function, values in look.arguments(proc.pid, own).items():
            visit.arguments.append(CallArguments(proc.pid, function, values))


def _arguments(visit: Visit) -> None:
    """What no recorder has: the partners of sends and receives of gloo, the source or target of a
    collective that some ranks have left and others never do, and groups that do not exist yet.
    """
    view_now = view.build(visit.evidence())
    joined = {wait.rank for wait in view_now.matching.waits if wait.why == "joined"}
    rooted = [proc for proc in view_now.by_rank.values() if proc.place.operation in ROOTED]
    procs = [proc for proc in rooted if proc.rank in joined][:MOST_ROOTED]
    procs += [proc for proc in view_now.by_rank.values() if proc.place.call == "p2p"]
    creating = [proc for proc in view_now.by_rank.values() if proc.place.operation in CREATING]
    procs += creating[:MOST_CREATING]
    for proc in procs:
        if not proc.cannot_run:
            for function, values in look.arguments(proc.pid, P2P | ROOTED | CREATES).items():
                visit.arguments.append(CallArguments(proc.pid, function, values))
