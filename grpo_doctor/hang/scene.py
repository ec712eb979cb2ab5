"""The evidence, joined per process: what each one is, does, moved and is blocked on. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

from grpo_doctor.hang import dumps, matching
from grpo_doctor.hang.hosts import elsewhere
from grpo_doctor.hang.known_code import Purpose
from grpo_doctor.hang.patience import Patience, patience_of
from grpo_doctor.hang.places import Place, place_of
from grpo_doctor.hang.progress import Motion, motion_of
from grpo_doctor.phases import phase_of
from grpo_doctor_probes.evidence import (
    Blocked,
    EngineLook,
    Evidence,
    FlightDump,
    Limits,
    Member,
    OpenSpanSeen,
    ProcessLook,
    PythonThread,
    Stack,
    Thread,
)

NCCL_THREADS = ("pt_nccl_", "NCCL ")  # torch's watchdog and heartbeat, NCCL's own


@dataclass(frozen=True, slots=True)
class Actor:
    """One process of the job. `place` is of its main thread, at the last look that had a stack."""

    member: Member
    motion: Motion
    place: Place
    look: ProcessLook | None = None
    stack: Stack | None = None
    native: Stack | None = None
    blocked: tuple[Blocked, ...] = ()
    limits: tuple[Limits, ...] = ()  # oldest first
    spans: tuple[OpenSpanSeen, ...] = ()
    ended_meanwhile: bool = False  # between the first look and the last
    outstanding: bool = False  # has joined a collective that is not done, and missed none
    at_store: bool = False  # waits for an answer of the rendezvous store

    @property
    def pid(self) -> int:
        """Its process number."""
        return self.member.pid

    @property
    def rank(self) -> int | None:
        """The rank it is or works for."""
        return self.member.rank

    @property
    def node(self) -> str:
        """Its name in the wait-for graph."""
        if self.member.role == "rank" and self.rank is not None:
            return f"rank:{self.rank}"
        return f"pid:{self.pid}"

    @property
    def main(self) -> Thread | None:
        """Its main thread as the kernel sees it."""
        return self.look.threads[0] if self.look is not None and self.look.threads else None

    @property
    def phase(self) -> str | None:
        """The phase it is in: its open span's, else its stack's."""
        for span in sorted(self.spans, key=lambda one: one.age_s):
            found = phase_of(span.name)
            if found is not None and not span.collective:
                return found
        return self.place.phase

    @property
    def waits(self) -> bool:
        """Whether it needs other ranks to get on, and is not itself held by force."""
        held = self.motion.kind in ("gone", "stopped", "frozen")
        unseen = not self.place.frames and any(span.collective for span in self.spans)
        return not held and (self.place.communicates or self.outstanding or self.at_store or unseen)

    @property
    def held(self) -> bool:
        """Whether something keeps it from running at all."""
        return self.motion.kind in ("gone", "stopped", "frozen")

    @property
    def spins(self) -> bool:
        """Whether it waits for its GPU, by the looks of it.

        The CUDA driver burns a core at one line until a kernel ends, one of NCCL that never will
        included. Only the flight recorders tell that from a long computation.
        """
        threads = self.look.threads if self.look is not None else ()
        on_gpu = any(thread.name.startswith(NCCL_THREADS) for thread in threads)
        return on_gpu and self.motion.kind == "busy" and bool(self.place.frames)

    @property
    def long_work(self) -> Purpose | None:
        """Long work that it is in by its stack; what it is blocked on is not considered."""
        return self.place.long_work

    @property
    def hold(self) -> Blocked | None:
        """What its main thread is blocked on, if that was found."""
        rows = [one for one in self.blocked if one.tid == self.pid]
        return next((one for one in rows if not self._is_own_alarm(one)), None)

    def _is_own_alarm(self, row: Blocked) -> bool:
        """The socket by which an event loop's other threads wake it: nobody else writes to it."""
        return row.peers == (self.pid,) and self.place.call == "asyncio"

    @property
    def python_threads(self) -> tuple[PythonThread, ...]:
        """Its threads with Python frames, the main one first."""
        return self.stack.threads if self.stack is not None else ()

    def thread(self, tid: int) -> Thread | None:
        """One of its threads as the kernel sees it."""
        threads = self.look.threads if self.look is not None else ()
        return next((one for one in threads if one.tid == tid), None)


@dataclass(frozen=True, slots=True)
class Scene:
    """Everything a cause needs to know. `by_rank` has training ranks alone."""

    evidence: Evidence
    actors: tuple[Actor, ...]
    recordings: dumps.Recordings
    matching: matching.Matching
    patience: Patience
    by_rank: dict[int, Actor] = field(default_factory=dict)
    by_pid: dict[int, Actor] = field(default_factory=dict)

    @property
    def world(self) -> tuple[int, ...]:
        """All ranks of the job, seen or not."""
        size = self.evidence.job.world_size or self.matching.world_size or 0
        return tuple(sorted({*range(size), *self.by_rank, *self.evidence.job.ranks_missing}))

    @property
    def all_spin(self) -> bool:
        """Whether every rank waits for its GPU, and no recorder says that it is for another."""
        ranks = self.by_rank.values()
        return bool(ranks) and all(one.spins and not one.waits for one in ranks)

    @property
    def elsewhere(self) -> frozenset[int]:
        """Missing ranks that may be on another host."""
        here = {rank: actor.member.local_rank for rank, actor in self.by_rank.items()}
        return elsewhere(self.evidence.job, here)

    def children(self, pid: int) -> tuple[Actor, ...]:
        """The processes that this one started, of the job."""
        return tuple(one for one in self.actors if one.member.parent == pid)

    def engine_parts(self) -> tuple[Actor, ...]:
        """Engines, their workers, and the fronts that started them or answer for them."""
        cores = {one.pid for one in self.actors if _is_engine(one.member)}
        fronts = {
            one.member.parent
            for one in self.actors
            if one.pid in cores and one.member.parent in self.by_pid
        }
        training = {one.pid for one in self.by_rank.values()}
        return tuple(
            one
            for one in self.actors
            if (one.pid in cores or one.pid in fronts or one.member.role == "server")
            and one.pid not in training
        )

    def engine_looks(self, pid: int) -> tuple[EngineLook, ...]:
        """What /metrics of this engine or server said, oldest first."""
        return tuple(one for looks in self.evidence.engines for one in looks if one.pid == pid)


@lru_cache(maxsize=2)
def _matched(
    raw: tuple[FlightDump, ...], world_size: int | None
) -> tuple[dumps.Recordings, matching.Matching]:
    """A visit is built up several times, and 64 full rings take seconds to read."""
    recordings = dumps.read(raw)
    return recordings, matching.match(recordings, world_size)


def _is_engine(member: Member) -> bool:
    """By its role, or by its name where it has died and nothing else of it can be read."""
    return member.role in ("engine", "engine-worker") or member.name.startswith("VLLM::")


def build(evidence: Evidence) -> Scene:
    """Joins one visit's evidence."""
    recordings, found = _matched(evidence.dumps, evidence.job.world_size)
    members = _ordered(evidence.job.members)
    actors = tuple(_actor(evidence, one, _outstanding(found, one)) for one in members)
    return Scene(
        evidence=evidence,
        actors=actors,
        recordings=recordings,
        matching=found,
        patience=patience_of(evidence, found),
        by_rank={a.rank: a for a in actors if a.member.role == "rank" and a.rank is not None},
        by_pid={a.pid: a for a in actors},
    )


def _ordered(members: tuple[Member, ...]) -> list[Member]:
    """By rank and process number, so that the order of discovery tells nothing."""
    return sorted(members, key=lambda m: (m.rank is None, m.rank or 0, m.role != "rank", m.pid))


def _outstanding(found: matching.Matching, member: Member) -> bool:
    """An NCCL rank waits at its next synchronization, not in the collective's own call."""
    if member.role != "rank" or member.rank is None:
        return False
    if any(member.rank in standing.missing for standing in found.standings):
        return False
    return any(wait.rank == member.rank and wait.why != "joined" for wait in found.waits)


def _ended_meanwhile(evidence: Evidence, pid: int) -> bool:
    seen = [look.of(pid) for look in evidence.looks]
    gone = [one is None or one.state in ("Z", "X") for one in seen]
    return len(gone) > 1 and gone[-1] and not gone[0]


def _asks_store(evidence: Evidence, row: Blocked) -> bool:
    """Every rank asks rank 0's store there; that is no wait for rank 0."""
    port = evidence.job.address.rpartition(":")[2]
    sockets = ("socket-receive", "socket-connect", "poll")
    return bool(port) and row.kind in sockets and row.target.endswith(f":{port}")


def _actor(evidence: Evidence, member: Member, outstanding: bool) -> Actor:
    pid = member.pid
    stacks = [s for one in evidence.stacks for s in one if s.pid == pid and s.threads]
    plain = [s for s in stacks if not s.native]
    stack = plain[-1] if plain else None
    main = next((t for t in stack.threads if t.tid == pid), None) if stack else None
    if main is None and stack is not None and stack.threads:
        main = stack.threads[0]
    rows = tuple(one for one in evidence.blocked if one.pid == pid)
    return Actor(
        member=member,
        motion=motion_of(evidence, pid),
        place=place_of(main),
        look=evidence.looks[-1].of(pid) if evidence.looks else None,
        stack=stack,
        native=next((s for s in reversed(stacks) if s.native), None),
        blocked=rows,
        limits=tuple(one for looks in evidence.limits for one in looks if one.pid == pid),
        spans=tuple(one for one in evidence.spans if one.pid == pid),
        ended_meanwhile=_ended_meanwhile(evidence, pid),
        outstanding=outstanding,
        at_store=any(_asks_store(evidence, row) for row in rows if row.tid == pid),
    )
