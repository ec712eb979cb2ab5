"""The evidence of one visit, joined: its processes, recordings and waits, and whether the job has
made no progress for unusually long: the only limits, for live jobs and dumps alike. Pure.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Literal

from grpo_doctor.hang import dumps
from grpo_doctor.hang.dumps import Recordings
from grpo_doctor.hang.dumps.documents import GIVES_UP
from grpo_doctor.hang.model import gpus
from grpo_doctor.hang.model.gpus import GpuJudgement
from grpo_doctor.hang.model.hosts import unseen
from grpo_doctor.hang.model.matching.match import match
from grpo_doctor.hang.model.matching.model import Matching
from grpo_doctor.hang.model.process import ray_code
from grpo_doctor.hang.model.process.proc import Process, index, native_calls, process_of
from grpo_doctor.hang.wording import seconds_text
from grpo_doctor_probes.evidence import EngineLook, Evidence, FlightDump, Job

__all__ = ["JobView", "Process", "build"]


@dataclass(frozen=True, slots=True)
class JobView:
    """Everything a cause needs to know. `by_rank` has training ranks alone."""

    evidence: Evidence
    procs: tuple[Process, ...]
    recordings: dumps.Recordings
    matching: Matching
    wait_history: WaitHistory
    gpus: GpuJudgement = field(default_factory=GpuJudgement)
    by_rank: dict[int, Process] = field(default_factory=dict)
    by_pid: dict[int, Process] = field(default_factory=dict)
    by_parent: dict[int, tuple[Process, ...]] = field(default_factory=dict)

    @property
    def world(self) -> tuple[int, ...]:
        """All ranks of the job, seen or not."""
        size = self.evidence.job.world_size or self.matching.world_size or 0
        return tuple(sorted({*range(size), *self.by_rank, *self.evidence.job.ranks_missing}))

    @property
    def seen(self) -> tuple[int, ...]:
        """Ranks with a process; without samples, those with a recording."""
        return tuple(sorted(self.by_rank if self.evidence.looks else self.matching.heard))

    @property
    def missing(self) -> tuple[int, ...]:
        """Ranks without a process; without samples, those without a recording."""
        if self.evidence.looks:
            return self.evidence.job.ranks_missing
        return tuple(rank for rank in self.world if rank not in self.seen)

    @property
    def waiting(self) -> set[int]:
        """Ranks that wait for others; without samples, by their recordings."""
        if self.evidence.looks:
            return {rank for rank, proc in self.by_rank.items() if proc.waits}
        return {wait.rank for wait in self.matching.waits}

    @property
    def all_spin(self) -> bool:
        """Whether every rank waits for its GPU, and no recorder says that it is for another."""
        ranks = self.by_rank.values()
        return bool(ranks) and all(proc.spins and not proc.waits for proc in ranks)

    @property
    def elsewhere(self) -> frozenset[int]:
        """Missing ranks that may be on another host."""
        return unseen(self.evidence.job)

    def children(self, pid: int) -> tuple[Process, ...]:
        """The processes that this one started, of the job."""
        return self.by_parent.get(pid, ())

    def engine_parts(self) -> tuple[Process, ...]:
        """Engines, their workers, and the fronts that started them or answer for them."""
        # By its name where it has died and nothing else of it can be read.
        named = {proc.pid for proc in self.procs if proc.member.name.startswith("VLLM::")}
        cores = named | {proc.pid for proc in self.procs if proc.is_part_of_engine}
        fronts = {
            proc.member.parent
            for proc in self.procs
            if proc.pid in cores
            # Ray's own daemon starts the actors in which engines run, and answers for none.
            and (front := self.by_pid.get(proc.member.parent)) is not None
            and not front.serves_ray
        }
        training = {proc.pid for proc in self.by_rank.values()}
        return tuple(
            proc
            for proc in self.procs
            if (proc.pid in cores or proc.pid in fronts or proc.member.role == "server")
            and proc.pid not in training
        )

    def engine_looks(self, pid: int) -> tuple[EngineLook, ...]:
        """What /metrics of this engine or server said, oldest first."""
        return tuple(look for looks in self.evidence.engines for look in looks if look.pid == pid)


@lru_cache(maxsize=2)
def _matched(
    raw: tuple[FlightDump, ...], world_size: int | None
) -> tuple[dumps.Recordings, Matching]:
    """A visit is built up several times, and 64 full rings take seconds to read."""
    recordings = dumps.read(raw)
    return recordings, match(recordings, world_size)


def build(evidence: Evidence) -> JobView:
    """Joins one visit's evidence."""
    recordings, matched = _matched(evidence.dumps, evidence.job.world_size)
    # Without a sample nothing is known of processes: the recordings alone are judged.
    # In an order that does not depend on that of discovery.
    members = sorted(
        evidence.job.members if evidence.looks else (),
        key=lambda m: (m.rank is None, m.rank or 0, m.role != "rank", m.pid),
    )
    store = evidence.job.address.rpartition(":")[2]
    observed = index(evidence)
    in_cpp = native_calls(observed.values())
    alone = [process_of(observed[m.pid], m, matched, store, in_cpp) for m in members]
    procs = with_device_waits(alone, recordings, matched, lost=_lost(evidence.job))
    return JobView(
        evidence=evidence,
        procs=procs,
        recordings=recordings,
        matching=matched,
        wait_history=wait_history_of(procs, matched) if procs else recorded_history(matched),
        gpus=gpus.judge_gpus(evidence),
        by_rank={a.rank: a for a in procs if a.member.role == "rank" and a.rank is not None},
        by_pid={a.pid: a for a in procs},
        by_parent=_by_parent(procs),
    )


def _lost(job: Job) -> bool:
    present = {member.rank for member in job.ranks()}
    return bool(set(job.ranks_missing) - present - unseen(job))


def _by_parent(procs: tuple[Process, ...]) -> dict[int, tuple[Process, ...]]:
    children: dict[int, list[Process]] = defaultdict(list)
    for proc in procs:
        children[proc.member.parent].append(proc)
    return {parent: tuple(own) for parent, own in children.items()}


def with_device_waits(
    procs: Sequence[Process], recordings: Recordings, matching: Matching, *, lost: bool
) -> tuple[Process, ...]:
    """The same processes; those ranks are `outstanding` whose device waits for another rank's.

    `lost`: a rank that should be here has no process.
    """
    ranks = [proc for proc in procs if proc.member.role == "rank"]
    elsewhere = lost or any(not (proc.spins or proc.waits) for proc in ranks)

    def waits_for_others(proc: Process) -> bool:
        pending = has_pending(recordings, matching, proc.rank)
        return elsewhere if pending is None else pending

    return tuple(
        replace(proc, outstanding=True)
        if proc.member.role == "rank" and proc.spins and not proc.waits and waits_for_others(proc)
        else proc
        for proc in procs
    )


def has_pending(recordings: Recordings, matching: Matching, rank: int | None) -> bool | None:
    """Return whether its device has operations queued that are not done; None where no recorder of
    a device's library shows it: that of gloo knows nothing of them.
    """
    recording = recordings.of(rank) if rank is not None else None
    if recording is None or rank not in matching.heard:
        return None
    of_device = recording.library or any(e.backend in GIVES_UP for e in recording.entries)
    return rank not in matching.idle if of_device else None


WaitKind = Literal["proven", "asleep", "polls", "outside", "computes", "long"]
LEAST_ENTRIES = 8  # fewer operations than that are no history


@dataclass(frozen=True, slots=True)
class Limit:
    """A wait is unusual if it is longer than both. `untold_s`: without a history of this job."""

    floor_s: float
    times_longest: float
    untold_s: float


# Floors are what healthy jobs were seen to take. No recorded healthy or slow job would be called
# stuck at 1.5 times its longest earlier wait; three times leaves room for longer tails.
LIMITS: dict[WaitKind, Limit] = {
    "proven": Limit(3.0, 0.0, 3.0),  # a shorter wait may be a moment in a healthy job
    "asleep": Limit(5.0, 3.0, 30.0),
    "polls": Limit(60.0, 10.0, 60.0),  # a rank that asks often may get a response
    "outside": Limit(60.0, 3.0, 60.0),  # judges were seen to respond after 40 s
    "computes": Limit(300.0, 10.0, math.inf),  # work has long tails
    "long": Limit(1800.0, 10.0, math.inf),  # a rollout, a checkpoint, a download
}
FLOOR_S = LIMITS["asleep"].floor_s


@dataclass(frozen=True, slots=True)
class WaitHistory:
    """How long the ranks that wait have waited, against how long they ever did.

    `waited_s` is the longest present wait of a rank for others, by the recordings, else by when
    main threads last ran. `longest_gap_s` is the longest earlier time without any operation; None
    without history. `familiar`: whether that history has waits like the present ones; at a job's
    first step, and where recorders hold less than a step, it does not.
    """

    waited_s: float | None = None
    longest_gap_s: float | None = None
    familiar: bool = True

    def unusual(self, waited_s: float | None = None, wait_kind: WaitKind = "asleep") -> bool:
        """Whether a wait, the present one by default, is longer than this job's steps ever had."""
        waited = self.waited_s if waited_s is None else waited_s
        if waited is None:
            return False
        limit, longest = LIMITS[wait_kind], self.longest_gap_s
        # Work is held against any history; who sleeps only against waits like its own.
        has_history = longest is not None and (self.familiar or limit.untold_s == math.inf)
        floor_s = limit.floor_s if has_history else limit.untold_s
        return waited >= max(floor_s, limit.times_longest * (longest or 0.0))

    def text(self, still_s: float | None = None) -> str:
        """`8.1 s, where 0.4 s was the longest before`. `still_s` of who is to blame, if longer."""
        known = (self.waited_s, still_s)
        waits = [wait_s for wait_s in known if wait_s is not None and wait_s < math.inf]
        if not waits:
            return ""
        waited = seconds_text(max(waits))
        if not self.longest_gap_s or not self.familiar:
            return waited
        return f"{waited}; longest previous wait was {seconds_text(self.longest_gap_s)}"


def wait_history_of(procs: Sequence[Process], matching: Matching) -> WaitHistory:
    """Return the waits of the recordings, or of the ranks' threads where there are none."""
    waits = [
        (pace.taken_ns - pace.waiting_since_ns) / 1e9
        for pace in matching.paces
        if pace.waiting_since_ns is not None and pace.taken_ns
    ]
    waited_s = max(waits) if waits else _longest_still_s(procs)
    return WaitHistory(waited_s, _longest_gap_s(matching), matching.familiar)


def recorded_history(matching: Matching) -> WaitHistory:
    """Return the waits of recordings alone: the rank that enqueued last shows how long they are.

    They count as endless where a watchdog gave up, and where copied files have no time to go by.
    """
    times_s = [
        max(pace.taken_ns - pace.last_enqueued_ns, 0) / 1e9
        for pace in matching.paces
        if pace.last_enqueued_ns is not None and pace.taken_ns
    ]
    timed_out = any(status.timed_out for status in matching.statuses)
    waited_s = math.inf if timed_out else min(times_s, default=math.inf)
    return WaitHistory(waited_s, _longest_gap_s(matching), matching.familiar)


def _longest_gap_s(matching: Matching) -> float | None:
    gaps_ns = [
        pace.longest_gap_ns
        for pace in matching.paces
        if pace.longest_gap_ns is not None and pace.entries >= LEAST_ENTRIES
    ]
    return max(gaps_ns) / 1e9 if gaps_ns else None


def _longest_still_s(procs: Sequence[Process]) -> float | None:
    """For how long a rank has been still: by its thread that is in a call to other ranks, else by
    its main thread. Ranks that Ray wakes by its own clock do not count, nor do those that try a
    lock file again and again.
    """
    ages: list[float] = []
    for proc in procs:
        frames = proc.place.frames
        by_ray = not proc.cannot_run and (ray_code.in_loop(frames) or ray_code.asks(frames))
        tries = proc.place.call == "file-lock" and proc.activity.kind == "polling"
        if proc.member.role != "rank" or proc.look is None or by_ray or tries:
            continue
        if proc.device_wait:  # it runs all the time: nothing older is known than the visit
            ages.append(proc.activity.seconds)
            continue
        thread = proc.blocking_thread if proc.blocking_place.communicates else proc.main
        if thread is not None and thread.last_ran_ns:
            ages.append(max(proc.look.at_ns - thread.last_ran_ns, 0) / 1e9)
    return max(ages, default=None)
