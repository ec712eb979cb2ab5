"""One process of the job: what it is, does, moved and is blocked on. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from grpo_doctor.hang.model.matching import Matching
from grpo_doctor.hang.model.nodes import Node, ProcessNode, RankNode
from grpo_doctor.hang.model.process import device, ray_code
from grpo_doctor.hang.model.process.call_stack import Place, awaited, place_of, works_for_pool
from grpo_doctor.hang.model.process.known_code import Purpose
from grpo_doctor.hang.model.process.observations import NativeCalls, Observation
from grpo_doctor.hang.model.process.progress import Activity, has_time_limit
from grpo_doctor.phases import phase_of
from grpo_doctor_probes.evidence import (
    Blocked,
    Limits,
    Member,
    OpenSpanSeen,
    Position,
    ProcessLook,
    PythonThread,
    Stack,
    Thread,
)
from grpo_doctor_probes.stoppable import DRIVERS

NCCL_THREADS = ("pt_nccl_", "NCCL ")  # torch's watchdog and heartbeat, NCCL's own


@dataclass(frozen=True, slots=True)
class Process:
    """One process of the job.

    `place` is of its main thread, in the last sample that had a stack. `blocking_place` and `tid`
    are of the thread of its own that the main one waits for, else of the main one.
    """

    member: Member
    activity: Activity
    place: Place
    blocking_place: Place
    tid: int
    look: ProcessLook | None = None
    stack: Stack | None = None
    native: Stack | None = None
    blocked: tuple[Blocked, ...] = ()
    limits: tuple[Limits, ...] = ()  # oldest first
    spans: tuple[OpenSpanSeen, ...] = ()
    ended_meanwhile: bool = False  # between the first look and the last
    outstanding: bool = False  # has joined a collective that is not done, and missed none
    positions: tuple[Position, ...] = ()  # of its threads that use a core
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
    def node(self) -> Node:
        """Its name in the wait-for graph."""
        if self.member.role == "rank" and self.rank is not None:
            return RankNode(self.rank)
        return ProcessNode(self.pid)

    @property
    def main(self) -> Thread | None:
        """Its main thread as the kernel sees it."""
        return self.look.threads[0] if self.look is not None and self.look.threads else None

    @property
    def phase(self) -> str | None:
        """The phase it is in: its open span's, else its stack's."""
        for span in sorted(self.spans, key=lambda span: span.age_s):
            phase = phase_of(span.name)
            if phase is not None and not span.collective:
                return phase
        return self.place.phase or self.blocking_place.phase

    @property
    def throttled_share(self) -> float:
        """For how much of the time its quota of a core held it back."""
        if len(self.limits) < 2 or self.activity.seconds <= 0:
            return 0.0
        throttled_ns = self.limits[-1].throttled_ns - self.limits[0].throttled_ns
        return throttled_ns / 1e9 / self.activity.seconds

    @property
    def waits(self) -> bool:
        """Return whether it needs other ranks to make progress, and is not itself held by force."""
        unseen = not self.place.frames and any(span.collective for span in self.spans)
        beside = self.blocking_place.communicates and not self.activity.progresses
        called = self.place.communicates or beside or unseen
        return not self.cannot_run and (called or self.outstanding or self.at_store)

    @property
    def cannot_run(self) -> bool:
        """Whether something keeps it from running at all."""
        return self.activity.kind in ("gone", "stopped", "frozen")

    @property
    def spins(self) -> bool:
        """Return whether it appears to wait for its GPU.

        The CUDA driver burns a core at one line until a kernel ends, one of NCCL that never will
        included. Only the flight recorders distinguish that from a long computation.
        """
        threads = self.look.threads if self.look is not None else ()
        on_gpu = any(thread.name.startswith(NCCL_THREADS) for thread in threads)
        may_spin = on_gpu and self.activity.kind == "busy" and not self._computes
        return self.device_wait or (may_spin and bool(self.place.frames))

    @property
    def device_wait(self) -> bool:
        """Return whether its host waits for its device, spinning or asleep in the driver: the
        device may be busy, or wait for others.
        """
        return self.activity.kind == "spinning" or bool(self._driver)

    @property
    def _computes(self) -> bool:
        """Whether its main thread was seen in code that is no driver's."""
        main = [position for position in self.positions if position.tid == self.pid]
        return device.spins_in(main) is False

    @property
    def _driver(self) -> str:
        """The device file on which its main thread sleeps, as with blocking synchronization."""
        if self.activity.kind not in ("still", "polling"):
            return ""
        rows = [row.target for row in self.blocked if row.tid == self.pid]
        return next((target for target in rows if target.startswith(DRIVERS)), "")

    @property
    def long_work(self) -> Purpose | None:
        """Long work that it is in by its stack; what it is blocked on is not considered."""
        return self.place.long_work

    @property
    def blocking_thread(self) -> Thread | None:
        """The thread whose wait decides, as the kernel sees it: see `tid`."""
        return self.thread(self.tid)

    @property
    def waker_tids(self) -> frozenset[int]:
        """The threads of which one may end its wait: the main one, the one that it needs, and a
        pool's busy one where it needs a pool's or a queue.
        """
        asks = self.place.call in ("pool", "asyncio", "lock", "queue")
        pool = [thread.tid for thread in self.python_threads if asks and works_for_pool(thread)]
        return frozenset({self.pid, self.tid, *pool})

    @property
    def hold(self) -> Blocked | None:
        """What it is blocked on, if that was seen: the thread that decides, else the main one."""
        rows = [row for row in self.blocked if row.tid == self.tid]
        rows = rows or [row for row in self.blocked if row.tid == self.pid]
        if self.activity.kind == "still" and any(row.kind == "sleep" for row in rows):
            rows = [row for row in rows if row.kind == "sleep"]  # one long sleep tries no lock
        row = next((row for row in rows if not self._is_own_alarm(row)), None)
        unknown = row is None or (row.kind in ("poll", "futex") and not row.peers)
        return self._unread() or row if unknown else row

    def _unread(self) -> Blocked | None:
        """The only connection on which a library's own thread has sent what is not read: gRPC and
        the like talk in threads that no Python stack shows.
        """
        rows = [
            row
            for row in self.blocked
            if row.kind in ("socket-receive", "socket-send") and row.peer_unread_bytes
        ]
        return rows[0] if len(rows) == 1 and rows[0].peers else None

    def _is_own_alarm(self, row: Blocked) -> bool:
        """Return whether it is an event loop's own wake-up socket: no other process writes it."""
        return row.peers == (self.pid,) and self.place.call == "asyncio"

    @property
    def waits_in_c(self) -> bool:
        """Return whether its main thread sleeps in a C call of the user's own line that is no plain
        lock; only its native stack shows which call.
        """
        own = self.place.user is not None and self.place.user == self.place.frames[0]
        asleep = any(row.kind == "futex" for row in self.blocked if row.tid == self.pid)
        timed = self.main is not None and has_time_limit(self.main)
        return own and asleep and timed and not self.place.call

    @property
    def python_threads(self) -> tuple[PythonThread, ...]:
        """Its threads with Python frames, the main one first."""
        return self.stack.threads if self.stack is not None else ()

    def thread(self, tid: int) -> Thread | None:
        """One of its threads as the kernel sees it."""
        threads = self.look.threads if self.look is not None else ()
        return next((thread for thread in threads if thread.tid == tid), None)


def _asks_store(port: str, row: Blocked) -> bool:
    """Every rank asks rank 0's store there; that is no wait for rank 0."""
    sockets = ("socket-receive", "socket-connect", "poll")
    return bool(port) and row.kind in sockets and row.target.endswith(f":{port}")


def _outstanding(matching: Matching, member: Member, place: Place, activity: Activity) -> bool:
    """Return whether an NCCL rank waits at its next synchronization, or a DDP backward pass for its
    last gradients, not in the collective's call. A rank that also misses one that others are in
    waits for that only if it is in torch's own code; else it is on its way there.
    """
    if member.role != "rank" or member.rank is None:
        return False
    if not any(wait.rank == member.rank and wait.why != "joined" for wait in matching.waits):
        return False
    behind = any(member.rank in status.missing for status in matching.statuses)
    return not behind or (place.in_torch and activity.kind in ("still", "polling"))


def process_of(
    observed: Observation, member: Member, matching: Matching, store_port: str, in_cpp: NativeCalls
) -> Process:
    """What was seen of one process, joined."""
    stack = observed.stack
    threads = stack.threads if stack is not None else ()
    main = next((t for t in threads if t.tid == member.pid), threads[0] if threads else None)
    main = ray_code.carrier(threads, main)
    tid = main.tid if main is not None else member.pid
    place = place_of(main)
    if not place.call and place.frames in in_cpp:
        place = replace(place, call=in_cpp[place.frames], operation="Work.wait")
    rows = observed.blocked
    helper = awaited(place, [t for t in threads if t is not main], rows)
    return Process(
        member=member,
        activity=observed.activity,
        place=place,
        blocking_place=place_of(helper) if helper is not None else place,
        tid=helper.tid if helper is not None else tid,
        look=observed.looks[-1] if observed.looks else None,
        stack=stack,
        native=observed.native,
        blocked=rows,
        limits=observed.limits,
        spans=observed.spans,
        ended_meanwhile=observed.ended_meanwhile,
        outstanding=_outstanding(matching, member, place, observed.activity),
        positions=observed.closer.positions,
        at_store=any(_asks_store(store_port, row) for row in rows if row.tid == member.pid),
    )
