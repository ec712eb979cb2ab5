"""Pipes, sockets, sleeps, queues and futures: ranks that wait for something that does not come."""

from __future__ import annotations

from collections.abc import Iterator

from grpo_doctor.hang.causes.candidate import GUESS, MATTER, PLACE, Candidate, Case
from grpo_doctor.hang.causes.wording import (
    blocked_class,
    in_phase,
    named,
    stack_item,
    still_item,
)
from grpo_doctor.hang.scene import Actor, Scene
from grpo_doctor.hang.verdict import Fix, Item, Undo
from grpo_doctor.hang.waits import asks_engine
from grpo_doctor_probes.evidence import Blocked

_SOCKETS = ("socket-receive", "socket-send", "socket-connect", "socket-accept")
_VERBS = {
    "socket-receive": "waits for an answer from",
    "socket-send": "sends to",
    "socket-connect": "connects to",
    "socket-accept": "waits for a connection on",
}
_HELD = ("gone", "stopped", "frozen")
_STILL = ("still", "polling", *_HELD)


def propose(case: Case) -> Iterator[Candidate]:
    """By the blocked call where it is known, else by the stack."""
    for actor in case.suspects:
        if actor.held or actor.motion.progresses:
            continue
        hold = effective_hold(actor)
        if hold is not None and hold.kind in ("pipe-write", "pipe-read"):
            yield _pipe(case.scene, actor, hold)
        elif hold is not None and hold.kind in _SOCKETS:
            yield _socket(case.scene, actor, hold)
        else:
            yield _by_place(case.scene, actor, hold)


def effective_hold(actor: Actor) -> Blocked | None:
    """What the main thread is blocked on; where that is another thread of its own, what that is."""
    hold = actor.hold
    if hold is not None and hold.kind not in ("futex", "other"):
        return hold
    python = {thread.tid for thread in actor.python_threads}
    inner = [b for b in actor.blocked if b.tid in python and b.tid != actor.pid]
    inner = [b for b in inner if b.kind in ("pipe-write", *_SOCKETS, "file-lock", "child")]
    return inner[0] if inner else hold


def _culprit(actor: Actor) -> tuple[int, ...]:
    return (actor.rank,) if actor.rank is not None else ()


def _peers_text(scene: Scene, hold: Blocked) -> str:
    parts = [
        named(scene.by_pid[pid]) if pid in scene.by_pid else f"pid {pid}" for pid in hold.peers[:3]
    ]
    if parts:
        return ", ".join(parts)
    return "nobody" if hold.peers_known else "a process we cannot see"


def _pipe(scene: Scene, actor: Actor, hold: Blocked) -> Candidate:
    writes = hold.kind == "pipe-write"
    peers = [scene.by_pid[pid] for pid in hold.peers if pid in scene.by_pid]
    others = [pid for pid in hold.peers if pid != actor.pid]
    nobody = hold.peers_known and not others
    seen_all = bool(peers) and len(peers) == len(hold.peers)
    # A reader that stands leaves the pipe full; a writer that stands may be waiting for its data.
    stands = _STILL if writes else _HELD
    idle = seen_all and all(peer.motion.kind in stands for peer in peers)
    who = _peers_text(scene, hold)
    what = (
        f"writes to a full pipe that {who} does not read"
        if writes
        else f"reads from a pipe that {who} does not write to"
    )
    end = f"/proc/{actor.pid}/fd/{hold.fd}"
    drain = Undo("drain", actor.pid, end, f"Read away what is in the full pipe of pid {actor.pid}?")
    fix = (
        "Read the other end while writing: subprocess.communicate(), or stdout to a file."
        if writes
        else "Close the pipe's other ends after fork, and give the read a timeout."
    )
    drained = f"cat {end} > /dev/null  # drains it; the rank must move"
    return Candidate(
        cause=blocked_class(actor),
        culprits=_culprit(actor),
        reason=f"{what},{in_phase(actor)}" if in_phase(actor) else what,
        evidence=(_held_item(actor, hold, who), still_item(actor), stack_item(actor)),
        hard=nobody or idle,
        precise=MATTER + 2,
        strength=0.92 if writes else 0.85,
        phase=actor.phase,
        still_s=actor.motion.still_s,
        fixes=(Fix(fix),),
        confirm=(drained if writes else f"lsof -p {actor.pid}",),
        undo=(drain,) if writes and hold.fd >= 0 else (),
    )


def _held_item(actor: Actor, hold: Blocked, who: str) -> Item:
    end = f", other end: {who}" if who else ""
    note = f"; {hold.note}" if hold.note else ""
    return Item("fd", actor.rank, f"{hold.kind} fd {hold.fd} {hold.target}{end}{note}")


def _socket(scene: Scene, actor: Actor, hold: Blocked) -> Candidate:
    peers = [scene.by_pid[pid] for pid in hold.peers if pid in scene.by_pid]
    idle = bool(peers) and all(p.motion.kind in _STILL for p in peers)
    dead = bool(peers) and all(p.held for p in peers)
    who = _peers_text(scene, hold) if hold.peers else ""
    target = " ".join(part for part in (hold.target, f"({who})" if who else "") if part)
    return Candidate(
        cause=blocked_class(actor),
        culprits=_culprit(actor),
        reason=f"{_VERBS[hold.kind]} {target or 'a socket'}{in_phase(actor)}",
        evidence=(_held_item(actor, hold, who), still_item(actor), stack_item(actor)),
        hard=dead,
        precise=MATTER + 1,
        strength=0.9 if idle else 0.85,
        phase=actor.phase,
        still_s=actor.motion.still_s,
        fixes=(
            Fix("Give the request a timeout (requests: timeout=(5, 60))."),
            Fix("Treat an answer that does not come as no reward, and go on."),
        ),
        confirm=(f"ss -tnp | grep pid={actor.pid}  # bytes waiting on either side",),
    )


def _by_place(scene: Scene, actor: Actor, hold: Blocked | None) -> Candidate:
    """A sleep, a queue, a future, an event loop: nothing outside shows what is awaited."""
    waits = {
        "sleep": "sleeps",
        "queue": "waits on a queue",
        "asyncio": "waits for a future that nobody sets",
        "http": "waits for an HTTP answer",
        "lock": "waits for another thread",
        "pool": "waits for a pool",
        "poll": "polls",
        "gc": "collects garbage",
    }
    kind = waits.get(actor.place.call, "")
    if not kind and hold is not None:
        kind = {"sleep": "sleeps", "poll": "waits in poll", "futex": "waits"}.get(
            hold.kind, "waits"
        )
    sleeping = actor.main is not None and "nanosleep" in actor.main.wchan
    kind = kind or ("sleeps" if sleeping else "does not move")
    hidden = asks_engine(actor) and bool(scene.engine_parts())
    return Candidate(
        cause=blocked_class(actor),
        culprits=_culprit(actor),
        reason=f"{kind}{in_phase(actor)}",
        evidence=(still_item(actor), stack_item(actor)),
        hard=False,
        precise=GUESS if hidden or not actor.place.frames else PLACE,
        strength=0.8 if actor.place.user is not None else 0.5,
        phase=actor.phase,
        still_s=actor.motion.still_s,
        fixes=(Fix("Give this wait a timeout, and let it fail loudly."),),
        confirm=(f"py-spy dump --pid {actor.pid}",),
    )
