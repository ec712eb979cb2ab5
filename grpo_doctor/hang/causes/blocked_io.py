"""Pipes, sockets, sleeps, queues and futures: ranks that wait for something that does not come."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from grpo_doctor.hang.causes.candidate import Candidate, Case, Liveness, Sink
from grpo_doctor.hang.causes.description import (
    blocked_class,
    doing,
    in_phase,
    is_blocked_in,
    peers_seen,
    place_text,
    process_item,
    standstill,
    title,
    working_class,
)
from grpo_doctor.hang.model.process.known_code import short
from grpo_doctor.hang.model.view import JobView, Process
from grpo_doctor.hang.model.waiting import polls, wakeups
from grpo_doctor.hang.model.waiting.chain import end_of
from grpo_doctor.hang.model.waiting.waits import asks_engine
from grpo_doctor.hang.model.waiting.wakeups import place_of_server
from grpo_doctor.hang.verdict import Fix, Item, Undo
from grpo_doctor_probes.evidence import Blocked

_VERBS = {
    "socket-receive": "waits for a response from",
    "socket-send": "sends to",
    "socket-connect": "connects to",
    "socket-accept": "waits for a connection on",
}
_DEBUGGER = re.compile(r"/(pdb|bdb|ipdb|pdbpp)\b")
_RESOLVES = ("getaddrinfo", "gethostbyname", "gethostbyaddr", "getfqdn")
_HELD = ("gone", "stopped", "frozen")
_STILL = ("still", "polling", *_HELD)
_TERMINALS = ("/dev/pts/", "/dev/tty", "/dev/console", "/dev/ptmx")
NO_PROCESS = "no process"
_CALLS = {
    "sleep": "sleeps",
    "queue": "waits on a queue",
    "asyncio": "waits for a future that is never set",
    "http": "waits for an HTTP response",
    "lock": "waits for another thread",
    "pool": "waits for a pool",
    "poll": "polls",
    "gc": "collects garbage",
}
_ASKS = {
    "sleep": "keeps checking and sleeping",
    "queue": "asks an empty queue again and again",
}
_WAIT_FIX = "Give this wait a timeout, and raise an error when it expires."
_SLEEP_FIX = "Remove or bound this sleep, and raise an error when it takes too long."
_HOLDS = {"sleep": "sleeps", "poll": "waits in poll"}
# No service is at the other end of these, whatever the phase of the rank says.
_CAN_GO_ON = {
    "lock": "Only if another thread of its process still wakes it; nothing "
    "outside that process can.",
    "sleep": "Yes, when the sleep returns, unless it is in a polling loop.",
}


def propose(case: Case) -> Iterator[Candidate]:
    """By the blocked call where it is known, else by the stack."""
    asked_s = polls.asked_s(case.view)
    for proc in case.idle:
        candidate = _candidate(case.view, proc).of(proc)
        if asked_s is not None:
            candidate = replace(candidate, still_s=max(candidate.still_s or 0.0, asked_s))
        end = end_of(case.view, case.graph, proc)
        if end is None:
            yield candidate
        elif end.member.role == "server" and not end.cannot_run and not end.activity.progresses:
            # Its main thread tells nothing: others of it answer requests.
            yield replace(candidate, node=end.node)
        else:
            yield _through(case.view, candidate, proc, end)


def _candidate(view: JobView, proc: Process) -> Candidate:
    hold = proc.hold
    if hold is not None and hold.kind in ("pipe-write", "pipe-read"):
        return _pipe(view, proc, hold)
    if hold is not None and hold.kind in _VERBS:
        return _socket(view, proc, hold)
    if hold is not None and hold.kind == "file" and is_terminal(hold.target):
        return _terminal(proc, hold)
    return _by_place(view, proc)


def is_terminal(path: str) -> bool:
    """Whether a descriptor with this path waits for a person, not for a disk."""
    return path.startswith(_TERMINALS)


def _through(view: JobView, candidate: Candidate, proc: Process, end: Process) -> Candidate:
    """What is at the other end of the wait, where that is a process of the job."""
    writes = is_blocked_in(proc, "pipe-write", "socket-send")
    of_child = not writes and _is_own_child(view, candidate, proc)
    through = replace(
        candidate,
        cause="child-stuck" if of_child else candidate.cause,
        reason=f"{candidate.reason}; {title(end)} {_does(end)}"
        if writes
        else f"waits{in_phase(proc)} for {title(end)}, which {_does(end)}",
        evidence=(candidate.evidence[0], process_item(end), *candidate.evidence[1:]),
        node=end.node,
    )
    if not end.activity.progresses:
        return through
    cause = "" if proc.long_work is not None else working_class(proc, end)
    fixes = (Fix("Give the work a timeout, in the process that does it as well."),)
    return replace(through, cause=cause, liveness="computing", fixes=fixes)


def _is_own_child(view: JobView, candidate: Candidate, proc: Process) -> bool:
    """Whether a process at the other end was started by this rank, for nothing that has a class of
    its own.
    """
    ends = proc.hold.peers if proc.hold is not None else ()
    own = (child for child in view.children(proc.pid) if child.pid in ends)
    helps = any(child.member.role in ("helper", "reward") for child in own)
    return candidate.cause == "user-code-blocked" and helps


def _does(end: Process) -> str:
    """What it is at for who is connected to it: its main thread may do no more than accept."""
    server = place_of_server(end)
    if server is end.blocking_place or end.cannot_run or end.activity.progresses:
        return doing(end)
    return f"makes no progress at {place_text(server)}"


def _terminal(proc: Process, hold: Blocked) -> Candidate:
    """`input()`, a debugger's prompt, or a terminal whose output was stopped."""
    debugs = any(_DEBUGGER.search(frame.file) for frame in proc.place.frames)
    types = "waits for keyboard input, or for paused output,"
    does = "is in a debugger" if debugs else types
    return Candidate(
        cause="user-code-blocked",
        reason=f"{does} at its terminal {hold.target}{in_phase(proc)}",
        evidence=(_held_item(proc, hold), *standstill(proc)),
        sink=Sink.ANSWER,
        fixes=(Fix("Remove breakpoint() and input() from code that runs on ranks."),),
        confirm=(f"grpo-doctor attach {proc.pid}  # again, to see whether it made progress",),
    )


def _pipe(view: JobView, proc: Process, hold: Blocked) -> Candidate:
    writes = hold.kind == "pipe-write"
    peer_pids = [pid for pid in hold.peers if pid != proc.pid]
    peers = _peers_text(view, hold)
    reader, writer = (f"{peers} does not read", f"{peers} does not write to")
    if peers == NO_PROCESS:
        reader, writer = (f"{peers} reads", f"{peers} writes to")
    does = f"writes to a full pipe that {reader}" if writes else f"reads from a pipe that {writer}"
    if peer_pids and set(hold.stopped_peers) >= set(peer_pids):
        return _behind_stopped(proc, hold, does)
    nobody = hold.peers_known and not peer_pids
    candidate = Candidate(
        cause=blocked_class(proc),
        reason=f"{does},{in_phase(proc)}".rstrip(","),
        evidence=(_held_item(proc, hold, peers), *standstill(proc)),
        sink=Sink.ANSWER,
        liveness="never-wakes" if nobody or _ends_stand(view, hold) else "unseen",
        fixes=(Fix("Close unused pipe ends after fork, and give the read a timeout."),),
        confirm=(f"lsof -p {proc.pid}",),
    )
    return _drained(candidate, proc, hold) if writes else candidate


def _drained(candidate: Candidate, proc: Process, hold: Blocked) -> Candidate:
    """What frees a writer: to read away what is in the pipe."""
    end = f"/proc/{proc.pid}/fd/{hold.fd}"
    drain = Undo(
        "drain", proc.pid, end, f"Read and discard the data in the full pipe of pid {proc.pid}?"
    )
    fix = Fix(
        "Read the other end while writing, both stdout and stderr: subprocess.communicate(), "
        "or redirect them to a file."
    )
    return replace(
        candidate,
        fixes=(fix,),
        confirm=(f"cat {end} > /dev/null  # drains it; the rank must resume",),
        undo=(drain,) if hold.fd >= 0 else (),
    )


def _ends_stand(view: JobView, hold: Blocked) -> bool:
    """A reader that stands leaves the pipe full; a writer that does may be waiting for its data."""
    peers = peers_seen(view, hold)
    stands = _STILL if hold.kind == "pipe-write" else _HELD
    seen_all = bool(peers) and len(peers) == len(hold.peers)
    return seen_all and all(peer.activity.kind in stands for peer in peers)


def _behind_stopped(proc: Process, hold: Blocked, does: str) -> Candidate:
    """Return the cause of a wait for a process that is stopped."""
    first = hold.stopped_peers[0]
    candidate = Candidate(
        cause=blocked_class(proc),
        reason=f"{does}, because it is stopped (SIGSTOP),{in_phase(proc)}".rstrip(","),
        evidence=(_held_item(proc, hold), *standstill(proc)),
        sink=Sink.ANSWER,
        liveness="never-wakes",
        can_go_on=f"Yes, as soon as pid {first} is resumed; nothing is lost.",
    )
    return candidate.continued(first)


def _peers_text(view: JobView, hold: Blocked) -> str:
    peers = [
        title(view.by_pid[pid]) if pid in view.by_pid else f"pid {pid}" for pid in hold.peers[:3]
    ]
    if peers:
        return ", ".join(peers)
    return NO_PROCESS if hold.peers_known else "a process that attach cannot see"


def _held_item(proc: Process, hold: Blocked, peers: str = "") -> Item:
    end = f", other end: {peers}" if peers else ""
    note = f"; {hold.note}" if hold.note else ""
    return Item("fd", proc.rank, f"{hold.kind} fd {hold.fd} {hold.target}{end}{note}")


def _socket(view: JobView, proc: Process, hold: Blocked) -> Candidate:
    peers = _peers_text(view, hold) if hold.peers else ""
    target = " ".join(part for part in (hold.target, f"({peers})" if peers else "") if part)
    if any(short(frame.function) in _RESOLVES for frame in proc.blocking_place.frames[:2]):
        address = f", {target}" if hold.target.endswith(":53") else ""
        target = f"the name server (DNS){address}"
    return Candidate(
        cause=blocked_class(proc),
        reason=f"{_VERBS[hold.kind]} {target or 'a socket'}{in_phase(proc)}",
        evidence=(_held_item(proc, hold, peers), *standstill(proc)),
        sink=Sink.ANSWER,
        liveness=_answers(peers_seen(view, hold), hold),
        fixes=(
            Fix("Give the request a timeout (requests: timeout=(5, 60))."),
            Fix("Treat a missing response as no reward, and continue."),
        ),
        confirm=(f"ss -tnp | grep pid={proc.pid}  # bytes waiting on either side",),
    )


def _answers(peers: Sequence[Process], hold: Blocked) -> Liveness:
    """Whether the processes that may answer belong to the job: others are not seen, and a server in
    which a thread sleeps until a time may answer then.
    """
    if peers and all(peer.cannot_run for peer in peers):
        return "never-wakes"
    if any(peer.member.role == "server" and wakeups.has_timer(peer) for peer in peers):
        return "outside"
    known = bool(peers) and len(peers) == len(hold.peers)
    return "unseen" if known or hold.kind == "socket-accept" else "outside"


def _by_place(view: JobView, proc: Process) -> Candidate:
    """A sleep, a queue, a future, an event loop: nothing outside shows what is awaited."""
    kind: str = proc.blocking_place.call
    does = _CALLS.get(kind, "")
    if not does and proc.blocking_thread is not None and proc.tid != proc.pid:
        # A main thread that polls for the next task does not show what the busy thread does.
        kind = "lock" if "futex" in proc.blocking_thread.wchan else ""
        does = _CALLS.get(kind, "")
    elif not does and proc.hold is not None:
        kind = proc.hold.kind
        does = _HOLDS.get(kind, "waits")
    if not does:
        sleeps = proc.blocking_thread is not None and "nanosleep" in proc.blocking_thread.wchan
        kind, does = ("sleep", "sleeps") if sleeps else ("", "makes no progress")
    for_what = ""
    if proc.activity.kind == "polling" and kind in _ASKS:
        does, for_what = _ASKS[kind], polls.what_for(view, proc)
    hidden = asks_engine(proc) and bool(view.engine_parts())
    return Candidate(
        cause=blocked_class(proc),
        reason=f"{does}{in_phase(proc)}{for_what}",
        evidence=standstill(proc),
        sink=Sink.NOTHING if hidden or not proc.place.frames else Sink.LINE,
        fixes=(Fix(_SLEEP_FIX if kind == "sleep" else _WAIT_FIX),),
        confirm=(f"grpo-doctor attach {proc.pid}  # again, to see whether it made progress",),
        can_go_on=_CAN_GO_ON.get(kind, ""),
    )
