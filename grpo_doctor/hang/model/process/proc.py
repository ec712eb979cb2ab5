"""One process of the job: what was seen of it, what it is, does, moved and is blocked on. Pure."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar

from grpo_doctor.hang.model.matching.model import Matching
from grpo_doctor.hang.model.nodes import Node, ProcessNode, RankNode, number_of
from grpo_doctor.hang.model.process import ray_code
from grpo_doctor.hang.model.process.progress import (
    HALTED,
    Activity,
    SpinSample,
    activity,
    has_time_limit,
    spins_in,
)
from grpo_doctor.hang.model.process.stacks import (
    IN_TORCH,
    Call,
    Place,
    awaited,
    is_of_framework,
    place_of,
    works_for_pool,
)
from grpo_doctor.phases import phase_of
from grpo_doctor_probes.evidence import (
    Await,
    Blocked,
    Evidence,
    Frame,
    Limits,
    Member,
    OpenSpanSeen,
    Position,
    ProcessLook,
    PythonThread,
    Stack,
    Thread,
)
from grpo_doctor_probes.procs.stoppable import DRIVERS

# Of torch's own C++: innermost functions of a wait for other ranks.
_NATIVE_WAITS: tuple[tuple[Call, re.Pattern[str]], ...] = (
    ("p2p", re.compile(r"^c10d::\w+::(Send|Recv)Work::wait|^gloo::.*::wait(Send|Recv)")),
    ("collective", re.compile(r"^c10d::(\w+::)*\w*Work\w*::(wait|synchronize)")),
)
_STORE = ("socket-receive", "socket-connect", "poll")
NativeCalls = dict[tuple[Frame, ...], Call]


class _OfProcess(Protocol):
    @property
    def pid(self) -> int:
        """The process it belongs to."""


Row = TypeVar("Row", bound=_OfProcess)


@dataclass(frozen=True, slots=True)
class Observation:
    """What was seen of one process. `looks`, `stacks` and `limits` are oldest first, one per look;
    None where that look did not find it.
    """

    looks: tuple[ProcessLook | None, ...] = ()
    stacks: tuple[tuple[Stack, ...], ...] = ()
    limits: tuple[Limits, ...] = ()
    blocked: tuple[Blocked, ...] = ()
    spans: tuple[OpenSpanSeen, ...] = ()
    awaits: tuple[Await, ...] = ()
    frozen: bool = False
    closer: SpinSample = field(default_factory=SpinSample)

    @property
    def stack(self) -> Stack | None:
        """The last stack without native frames."""
        python = [s for s in self._with_threads() if not s.native]
        return python[-1] if python else None

    @property
    def native(self) -> Stack | None:
        """The last stack with native frames."""
        return next((s for s in reversed(self._with_threads()) if s.native), None)

    @property
    def activity(self) -> Activity:
        """Return what it did between the first sample and the last."""
        if not self.looks:
            return Activity("unknown")
        stacks = [look[0] if look else None for look in self.stacks]
        return activity(self.looks[0], self.looks[-1], stacks, frozen=self.frozen, at=self.closer)

    @property
    def ended_meanwhile(self) -> bool:
        """Return whether the first sample found it alive and the last did not."""
        ended = [look is None or look.state in ("Z", "X") for look in self.looks]
        return len(ended) > 1 and ended[-1] and not ended[0]

    def _with_threads(self) -> list[Stack]:
        return [stack for look in self.stacks for stack in look if stack.threads]


def index(evidence: Evidence) -> dict[int, Observation]:
    """Of every process of the job."""
    looks = [_first_of_each(look.processes) for look in evidence.looks]
    stacks = [_of_each(look) for look in evidence.stacks]
    limits = [_first_of_each(look) for look in evidence.limits]
    blocked, spans = _of_each(evidence.blocked), _of_each(evidence.spans)
    awaits = _of_each(evidence.awaits)
    positions, digests = _of_each(evidence.positions), _of_each(evidence.locals_seen)
    ranks = {member.pid for member in evidence.job.ranks()}
    by_pid: dict[int, Observation] = {}
    for pid in {member.pid for member in evidence.job.members}:
        own = tuple(look[pid] for look in limits if pid in look)
        by_pid[pid] = Observation(
            looks=tuple(look.get(pid) for look in looks),
            stacks=tuple(look.get(pid, ()) for look in stacks),
            limits=own,
            blocked=blocked.get(pid, ()),
            spans=spans.get(pid, ()),
            awaits=awaits.get(pid, ()),
            closer=SpinSample(positions.get(pid, ()), digests.get(pid, ()), pid in ranks),
            frozen=bool(limits) and pid in limits[-1] and limits[-1][pid].frozen,
        )
    return by_pid


def _of_each(rows: Iterable[Row]) -> dict[int, tuple[Row, ...]]:
    by_pid: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        by_pid[row.pid].append(row)
    return {pid: tuple(own) for pid, own in by_pid.items()}


def _first_of_each(rows: Iterable[Row]) -> dict[int, Row]:
    return {pid: own[0] for pid, own in _of_each(rows).items()}


def native_calls(processes: Iterable[Observation]) -> NativeCalls:
    """Return stacks of Python frames whose main threads are in C++ under a line of the user's own,
    and their call: who is at the same line of the same callers is in the same one.
    """
    calls: NativeCalls = {}
    for process in processes:
        if process.native is None or process.stack is None:
            continue
        native = process.native.threads[:1]
        names = [frame.function for thread in native for frame in thread.frames]
        found = [call for call, rule in _NATIVE_WAITS if any(map(rule.search, names))]
        if found and process.stack.threads:
            calls[process.stack.threads[0].frames] = found[0]
    return calls


NCCL_THREADS = ("pt_nccl_", "NCCL ")  # torch's watchdog and heartbeat, NCCL's own


@dataclass(frozen=True, slots=True)
class Process:
    """One process of the job.

    `place` is of its main thread, in the last sample that had a stack. `blocking_place` and `tid`
    are of the thread or coroutine of its own that the main one waits for, else of the main one.
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
    awaits: tuple[Await, ...] = ()  # what coroutines of its event loop wait for
    positions: tuple[Position, ...] = ()  # of its threads that use a core
    at_store: bool = False  # waits for an answer of the rendezvous store

    @property
    def pid(self) -> int:
        """Its identity: with the hosts of joined evidence, not the number on its own host."""
        return self.member.pid

    @property
    def number(self) -> int:
        """Its number on its own host."""
        return number_of(self.pid)

    @property
    def on_host(self) -> str:
        """` on node7` in joined evidence, else nothing."""
        return f" on {self.member.host}" if self.member.host else ""

    @property
    def name(self) -> str:
        """`pid 4711`, or `pid 4711 on node7`."""
        return self.name_of(self.pid)

    def name_of(self, pid: int) -> str:
        """The same of another process of its host."""
        return f"pid {number_of(pid)}{self.on_host}"

    def shell(self, line: str) -> str:
        """A command line for its `{pid}`, with the host that it is for as a comment."""
        line = line.replace("{pid}", str(self.number))
        if not self.on_host:
            return line
        line, mark, comment = line.partition("  # ")
        return f"{line}  #{self.on_host}{f': {comment}' if mark else ''}"

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
        """Return whether something keeps it from running at all."""
        return self.activity.kind in HALTED

    @property
    def task(self) -> str:
        """The method or function that Ray calls it for, `Worker.update`; the actor's name alone
        where its title has no more; empty for all that have no task.
        """
        return ray_code.task_of(self.member, self.place.frames)

    @property
    def is_idle(self) -> bool:
        """Return whether it is an actor of Ray that is able to work and has no task."""
        return not self.cannot_run and not self.task and ray_code.in_loop(self.place.frames)

    @property
    def asks(self) -> bool:
        """Return whether it waits in Ray for the result of a task, or, as verl's controller does
        until samples are there, sleeps at a line of a framework between asking for it.
        """
        frames, own = self.place.frames, (row for row in self.blocked if row.tid == self.tid)
        of_ray = ray_code.is_actor(self.member) or self.member.role == "ray"
        at_framework = bool(frames) and is_of_framework(frames[0].file)
        sleeps = of_ray and at_framework and any(row.kind == "sleep" for row in own)
        awaits = any(each.what == "ray" for each in self.awaits[:1])
        return not self.cannot_run and (ray_code.asks(frames) or sleeps or awaits)

    @property
    def actor(self) -> str:
        """What Ray calls one of its workers, `Worker.update` or `Worker`; empty for all others."""
        return ray_code.title_of(self.member)

    @property
    def serves_ray(self) -> bool:
        """Whether it is Ray's own: it wakes and writes whether or not the job makes progress."""
        return ray_code.serves(self.member)

    @property
    def is_part_of_engine(self) -> bool:
        """Return whether it is a rollout engine's core or one of its workers."""
        return self.member.role in ("engine", "engine-worker")

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
        """Return whether its main thread was seen in code that is no driver's."""
        main = [position for position in self.positions if position.tid == self.pid]
        return spins_in(main) is False

    @property
    def _driver(self) -> str:
        """The device file on which its main thread sleeps, as with blocking synchronization."""
        if self.activity.kind not in ("still", "polling"):
            return ""
        rows = [row.target for row in self.blocked if row.tid == self.pid]
        return next((target for target in rows if target.startswith(DRIVERS)), "")

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
        if self.place.call == "asyncio":  # a loop's own wake-up socket: no other process writes it
            rows = [row for row in rows if row.peers != (self.pid,)]
        row = next(iter(rows), None)
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

    @property
    def idle_loop(self) -> PythonThread | None:
        """The thread of an event loop all of whose coroutines wait: none of them has a stack."""
        loops = (
            thread
            for thread in self.python_threads
            if any("/asyncio/" in frame.file for frame in thread.frames)
            or ray_code.LOOP_THREAD.search(thread.name)
        )
        return next(filter(ray_code.waits_for_events, loops), None)

    @property
    def coroutine(self) -> Await | None:
        """The coroutine that `blocking_place` is of, if it is of one."""
        own = self.awaits[:1]
        return own[0] if own and own[0].frames == self.blocking_place.frames else None

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
    in_torch = bool(place.frames) and IN_TORCH.search(place.frames[0].file) is not None
    return not behind or (in_torch and activity.kind in ("still", "polling"))


def coroutine_of(awaits: Sequence[Await], beside: PythonThread | None) -> Iterator[PythonThread]:
    """Yield the coroutine that decides, as if it were a thread: its event loop's, or `beside`."""
    for first in awaits[:1]:
        yield PythonThread(beside.tid if beside is not None else first.tid, "", first.frames)


def without_others(rows: tuple[Blocked, ...], awaits: Sequence[Await]) -> tuple[Blocked, ...]:
    """Return `rows` without connections of an event loop for which the coroutine does not wait."""
    if not awaits or (awaits[0].what == "connection" and awaits[0].fd < 0):
        return rows
    tid, fd = awaits[0].tid, awaits[0].fd
    return tuple(row for row in rows if row.tid != tid or row.fd == fd >= 0)


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
    if place.call in ("pool", "asyncio") and (helper is None or place_of(helper).user is None):
        helper = next(iter(coroutine_of(observed.awaits, helper)), helper)
        rows = without_others(rows, observed.awaits)
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
        awaits=observed.awaits,
        ended_meanwhile=observed.ended_meanwhile,
        outstanding=_outstanding(matching, member, place, observed.activity),
        positions=observed.closer.positions,
        # Every rank asks rank 0's store there; that is no wait for rank 0.
        at_store=bool(store_port)
        and any(
            row.kind in _STORE and row.target.endswith(f":{store_port}")
            for row in rows
            if row.tid == member.pid
        ),
    )
