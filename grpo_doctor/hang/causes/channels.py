"""Pipes, sockets, sleeps, queues and futures: ranks that wait for something that does not come."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from grpo_doctor.hang.causes.candidate import Candidate, Case, Liveness, Sink
from grpo_doctor.hang.causes.terminals import is_terminal
from grpo_doctor.hang.causes.wording import (
    blocked_class,
    culprit,
    doing,
    in_phase,
    named,
    place_text,
    process_item,
    stack_item,
    still_item,
    working_class,
)
from grpo_doctor.hang.model.process.known_code import short
from grpo_doctor.hang.model.scene import Actor, Scene
from grpo_doctor.hang.model.waiting import wakeups
from grpo_doctor.hang.model.waiting.chain import end_of
from grpo_doctor.hang.model.waiting.waits import asks_engine
from grpo_doctor.hang.model.waiting.wakeups import place_of_server
from grpo_doctor.hang.verdict import Fix, Item, Undo
from grpo_doctor_probes.evidence import Blocked

_SOCKETS = ("socket-receive", "socket-send", "socket-connect", "socket-accept")
_VERBS = {
    "socket-receive": "waits for an answer from",
    "socket-send": "sends to",
    "socket-connect": "connects to",
    "socket-accept": "waits for a connection on",
}
_DEBUGGER = re.compile(r"/(pdb|bdb|ipdb|pdbpp)\b")
_RESOLVES = ("getaddrinfo", "gethostbyname", "gethostbyaddr", "getfqdn")
_HELD = ("gone", "stopped", "frozen")
_STILL = ("still", "polling", *_HELD)


def propose(case: Case) -> Iterator[Candidate]:
    """By the blocked call where it is known, else by the stack."""
    for actor in case.hosts:
        if actor.held or actor.motion.progresses:
            continue
        end = end_of(case.scene, case.graph, actor)
        hold = actor.hold
        found = _candidate(case.scene, actor, hold)
        if end is None:
            yield found
        elif _idles(end):
            yield replace(found, node=end.node)
        else:
            yield _through(case.scene, found, actor, end)


def _candidate(scene: Scene, actor: Actor, hold: Blocked | None) -> Candidate:
    if hold is not None and hold.kind in ("pipe-write", "pipe-read"):
        return _pipe(scene, actor, hold)
    if hold is not None and hold.kind in _SOCKETS:
        return _socket(scene, actor, hold)
    if hold is not None and hold.kind == "file" and is_terminal(hold.target):
        return _terminal(actor, hold)
    return _by_place(scene, actor, hold)


def _idles(end: Actor) -> bool:
    """Whether it is a server whose main thread tells nothing: others of it answer requests."""
    return end.member.role == "server" and not end.held and not end.motion.progresses


def _through(scene: Scene, found: Candidate, actor: Actor, end: Actor) -> Candidate:
    """What is at the other end of the wait, where that is a process of the job."""
    hold = actor.hold
    writes = hold is not None and hold.kind in ("pipe-write", "socket-send")
    found = replace(
        found,
        cause="child-stuck" if not writes and _is_own_child(scene, found, actor) else found.cause,
        reason=f"{found.reason}; {named(end)} {_does(end)}"
        if writes
        else f"waits{in_phase(actor)} for {named(end)}, which {_does(end)}",
        evidence=(found.evidence[0], process_item(end), *found.evidence[1:]),
        node=end.node,
    )
    if not end.motion.progresses:
        return found
    cause = "" if actor.long_work is not None else working_class(actor, end)
    fixes = (Fix("Give the work a time limit, in the process that does it as well."),)
    return replace(found, cause=cause, liveness="computing", fixes=fixes)


def _is_own_child(scene: Scene, found: Candidate, actor: Actor) -> bool:
    """Whether a process at the other end was started by this rank, for nothing that has a class of
    its own.
    """
    ends = actor.hold.peers if actor.hold is not None else ()
    own = [one for one in scene.children(actor.pid) if one.member.role in ("helper", "reward")]
    return found.cause == "user-code-blocked" and any(one.pid in ends for one in own)


def _does(end: Actor) -> str:
    """What it is at for who is connected to it: its main thread may do no more than accept."""
    place = place_of_server(end)
    if place is end.deed or end.held or end.motion.progresses:
        return doing(end)
    return f"does not move at {place_text(place)}"


def _terminal(actor: Actor, hold: Blocked) -> Candidate:
    """`input()`, a debugger's prompt, or a terminal whose output was stopped."""
    debugs = any(_DEBUGGER.search(frame.file) for frame in actor.place.frames)
    what = (
        "stands in a debugger" if debugs else "waits for somebody to type, or for stopped output,"
    )
    return Candidate(
        cause="user-code-blocked",
        culprits=culprit(actor),
        reason=f"{what} at its terminal {hold.target}{in_phase(actor)}",
        evidence=(_held_item(actor, hold, ""), still_item(actor), stack_item(actor)),
        sink=Sink.PIPE,
        liveness="unseen",
        phase=actor.phase,
        still_s=actor.motion.still_s,
        fixes=(Fix("Take breakpoint() and input() out of what runs on ranks."),),
        confirm=(f"py-spy dump --pid {actor.pid}",),
    )


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
        "Read the other end while writing, both stdout and stderr: subprocess.communicate(), or "
        "send them to a file."
        if writes
        else "Close the pipe's other ends after fork, and give the read a timeout."
    )
    drained = f"cat {end} > /dev/null  # drains it; the rank must move"
    if others and set(hold.stopped_peers) >= set(others):
        return _behind_stopped(actor, hold, what)
    return Candidate(
        cause=blocked_class(actor),
        culprits=culprit(actor),
        reason=f"{what},{in_phase(actor)}" if in_phase(actor) else what,
        evidence=(_held_item(actor, hold, who), still_item(actor), stack_item(actor)),
        sink=Sink.PIPE,
        liveness="never-wakes" if nobody or idle else "unseen",
        phase=actor.phase,
        still_s=actor.motion.still_s,
        fixes=(Fix(fix),),
        confirm=(drained if writes else f"lsof -p {actor.pid}",),
        undo=(drain,) if writes and hold.fd >= 0 else (),
    )


def _behind_stopped(actor: Actor, hold: Blocked, what: str) -> Candidate:
    """Whoever could go on at the other end may not run."""
    first = hold.stopped_peers[0]
    awake = f"kill -CONT {first}"
    return Candidate(
        cause=blocked_class(actor),
        culprits=culprit(actor),
        reason=f"{what}, because it is stopped (SIGSTOP),{in_phase(actor)}".rstrip(","),
        evidence=(_held_item(actor, hold, ""), still_item(actor), stack_item(actor)),
        sink=Sink.PIPE,
        liveness="never-wakes",
        phase=actor.phase,
        still_s=actor.motion.still_s,
        fixes=(Fix(f"{awake} lets it go on; then find out who stopped it."),),
        confirm=(f"{awake}  # the rank must move at once",),
        undo=(Undo("continue", first, "", f"Send SIGCONT to pid {first}?"),),
        can_go_on=f"Yes, as soon as pid {first} may run again; nothing is lost.",
    )


def _held_item(actor: Actor, hold: Blocked, who: str) -> Item:
    end = f", other end: {who}" if who else ""
    note = f"; {hold.note}" if hold.note else ""
    return Item("fd", actor.rank, f"{hold.kind} fd {hold.fd} {hold.target}{end}{note}")


def _socket(scene: Scene, actor: Actor, hold: Blocked) -> Candidate:
    peers = [scene.by_pid[pid] for pid in hold.peers if pid in scene.by_pid]
    dead = bool(peers) and all(p.held for p in peers)
    who = _peers_text(scene, hold) if hold.peers else ""
    target = " ".join(part for part in (hold.target, f"({who})" if who else "") if part)
    if any(short(frame.function) in _RESOLVES for frame in actor.deed.frames[:2]):
        target = (
            f"the name server (DNS), {target}"
            if hold.target.endswith(":53")
            else ("the name server (DNS)")
        )
    return Candidate(
        cause=blocked_class(actor),
        culprits=culprit(actor),
        reason=f"{_VERBS[hold.kind]} {target or 'a socket'}{in_phase(actor)}",
        evidence=(_held_item(actor, hold, who), still_item(actor), stack_item(actor)),
        sink=Sink.ANSWER,
        liveness="never-wakes" if dead else _answers(peers, hold),
        phase=actor.phase,
        still_s=actor.motion.still_s,
        fixes=(
            Fix("Give the request a timeout (requests: timeout=(5, 60))."),
            Fix("Treat an answer that does not come as no reward, and go on."),
        ),
        confirm=(f"ss -tnp | grep pid={actor.pid}  # bytes waiting on either side",),
    )


def _answers(peers: Sequence[Actor], hold: Blocked) -> Liveness:
    """Whether whoever may answer is of the job: of others nothing is seen, and a server in which a
    thread sleeps until a time may answer then.
    """
    if any(one.member.role == "server" and wakeups.has_timer(one) for one in peers):
        return "outside"
    known = bool(peers) and len(peers) == len(hold.peers)
    return "unseen" if known or hold.kind == "socket-accept" else "outside"


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
    kind = waits.get(actor.deed.call, "")
    if not kind and hold is not None:
        kind = {"sleep": "sleeps", "poll": "waits in poll", "futex": "waits"}.get(
            hold.kind, "waits"
        )
    sleeping = actor.doer is not None and "nanosleep" in actor.doer.wchan
    kind = kind or ("sleeps" if sleeping else "does not move")
    hidden = asks_engine(actor) and bool(scene.engine_parts())
    return Candidate(
        cause=blocked_class(actor),
        culprits=culprit(actor),
        reason=f"{kind}{in_phase(actor)}",
        evidence=(still_item(actor), stack_item(actor)),
        sink=Sink.NOTHING if hidden or not actor.place.frames else Sink.LINE,
        liveness="timed" if sleeping else "unseen",
        phase=actor.phase,
        still_s=actor.motion.still_s,
        fixes=(Fix("Give this wait a timeout, and let it fail loudly."),),
        confirm=(f"py-spy dump --pid {actor.pid}",),
    )
