"""A silent network, and blocked calls on connections, pipes and terminals."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from grpo_doctor.hang.catalogue import advice
from grpo_doctor.hang.causes.candidate import (
    RECORDER,
    Candidate,
    Case,
    Liveness,
    Sink,
    blocked_class,
    coroutine_items,
    doing,
    in_phase,
    is_blocked_in,
    one_of,
    peers_seen,
    place_text,
    process_item,
    standstill,
    title,
    working_class,
)
from grpo_doctor.hang.model.hosts import ARROW, ends_of, host_at, parted
from grpo_doctor.hang.model.process.progress import HALTED
from grpo_doctor.hang.model.process.stacks import short
from grpo_doctor.hang.model.view import JobView, Process
from grpo_doctor.hang.model.waiting import tasks, wakeups
from grpo_doctor.hang.model.waiting.waits import asks_engine
from grpo_doctor.hang.model.waiting.wakeups import end_of, place_of_server
from grpo_doctor.hang.verdict import Item
from grpo_doctor.hang.wording import awaited_text, ranks_text
from grpo_doctor_probes.evidence import Blocked

_SURE, _LIKELY = 2, 1  # how much an end of a connection counts


def silent_network(case: Case) -> Iterator[Candidate]:
    """Yield the cause of a collective that all ranks reached and some did not finish."""
    view, statuses = case.view, case.view.matching.statuses
    if case.suspects or any(status.kind in ("missing", "mismatch") for status in statuses):
        return
    joined = ("all-joined-none-done", "partial")
    front = next((status for status in statuses if status.kind in joined), None)
    if front is None:
        return
    unsent = [
        connection
        for connection in view.evidence.blocked
        if connection.unconfirmed_bytes or connection.retransmits
    ]
    operation = front.operation
    everyone = f"all of {ranks_text(front.arrived)} are in {operation} and none has finished it"
    ranks, where = _cut_off(view, unsent)
    connections = (
        Item("fd", view.by_pid[connection.pid].rank, f"{connection.target}: {connection.note}")
        for connection in unsent[:4]
        if connection.pid in view.by_pid
    )
    silence = f"all ranks are in {operation} and no data gets through the network{where}"
    yield Candidate(
        cause="network-silent",
        culprits=ranks,
        reason="sends data without any response from the network",
        whole="" if len(ranks) == 1 and not where else silence,
        evidence=(Item(RECORDER, None, everyone), *connections),
        sink=Sink.COUNTERS,
        liveness="never-wakes" if any(row.retransmits for row in unsent) else "outside",
        still_s=view.wait_history.waited_s,
        fixes=advice("transport"),
        confirm=("ss -tnoi  # unacknowledged bytes and retransmissions between the ranks",),
    )


def _cut_off(view: JobView, unsent: Sequence[Blocked]) -> tuple[tuple[int, ...], str]:
    """Who is cut off, and where the network is, ` between a and b`. Between hosts that were looked
    at no rank is to blame for a link that is down: it would be as many ranks as use it.
    """
    hosts = parted(view.evidence, unsent)
    if len(hosts) == 2:
        return (), f" between {hosts[0]} and {hosts[1]}"
    if hosts:
        cut_off = [rank for rank, proc in view.by_rank.items() if proc.member.host == hosts[0]]
        return tuple(sorted(cut_off)), f" to {hosts[0]}"
    ranks, host = _most_cut_off(view, unsent)
    return ranks, f" to {host}" if host else ""


def _most_cut_off(view: JobView, unsent: Sequence[Blocked]) -> tuple[tuple[int, ...], str]:
    """The ranks with the most connections in trouble: each of these has two ends, and the end that
    is the same in all of them is the broken one. Else the host that they share.
    """
    rows = [row for row in unsent if ARROW in row.target and _rank(view, row.pid) is not None]
    rank_at = {ends_of(row)[0]: _rank(view, row.pid) for row in rows}
    at_host: dict[str, set[int | None]] = {}
    for endpoint, rank in rank_at.items():
        at_host.setdefault(host_at(endpoint), set()).add(rank)
    troubled: Counter[int | str | None] = Counter()
    for row in {frozenset(ends_of(row)): row for row in rows}.values():
        rank, remote = _rank(view, row.pid), ends_of(row)[1]
        peer_rank = rank_at.get(remote)
        if peer_rank is None and len(row.peers) == 1:
            peer_rank = _rank(view, row.peers[0])
        remote_ranks = at_host.get(host_at(remote), set()) - {rank}
        troubled[rank] += _SURE
        if peer_rank is not None:
            troubled[peer_rank] += _SURE
        elif len(remote_ranks) == 1:
            troubled[remote_ranks.pop()] += _LIKELY  # or another rank at that address
        else:
            troubled[host_at(remote)] += _SURE
    highest = max(troubled.values(), default=0)
    ranks = sorted(end for end, n in troubled.items() if n == highest and isinstance(end, int))
    hosts = sorted(end for end, n in troubled.items() if n == highest and isinstance(end, str))
    return tuple(ranks), hosts[0] if len(hosts) == 1 and not ranks else ""


def _rank(view: JobView, pid: int) -> int | None:
    proc = view.by_pid.get(pid)
    return proc.rank if proc is not None else None


_VERBS = {
    "socket-receive": "waits for a response from",
    "socket-send": "sends to",
    "socket-connect": "connects to",
    "socket-accept": "waits for a connection on",
}
_DEBUGGER = re.compile(r"/(pdb|bdb|ipdb|pdbpp)\b")
_RESOLVES = ("getaddrinfo", "gethostbyname", "gethostbyaddr", "getfqdn")
_STILL = ("still", "polling", *HALTED)
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
_ASKS = {"sleep": "keeps checking and sleeping", "queue": "asks an empty queue again and again"}
_AGAIN = "grpo-doctor attach {pid}  # again, to see whether it made progress"
_HOLDS = {"sleep": "sleeps", "poll": "waits in poll"}
# No service is at the other end of these, whatever the phase of the rank says.
_CAN_GO_ON = {
    "coroutine": "Only if another coroutine of its event loop ends the wait.",
    "lock": "Only if another thread of its process still wakes it; nothing "
    "outside that process can.",
    "sleep": "Yes, when the sleep returns, unless it is in a polling loop.",
}


def blocked_io(case: Case) -> Iterator[Candidate]:
    """By the blocked call where it is known, else by the stack."""
    asked_s = tasks.asked_s(case.view)
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
    """Return whether a descriptor with this path waits for a person, not for a disk."""
    return path.startswith(_TERMINALS)


def _through(view: JobView, candidate: Candidate, proc: Process, end: Process) -> Candidate:
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
    cause = "" if proc.place.long_work is not None else working_class(proc, end)
    return replace(through, cause=cause, liveness="computing", fixes=advice("work elsewhere"))


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
    debugs = any(_DEBUGGER.search(frame.file) for frame in proc.place.frames)
    types = "waits for keyboard input, or for paused output,"
    does = "is in a debugger" if debugs else types
    return Candidate(
        cause="user-code-blocked",
        reason=f"{does} at its terminal {hold.target}{in_phase(proc)}",
        evidence=(_held_item(proc, hold), *standstill(proc)),
        sink=Sink.ANSWER,
        fixes=advice("breakpoint" if debugs else "terminal input"),
        confirm=(proc.shell(_AGAIN),),
    )


def _pipe(view: JobView, proc: Process, hold: Blocked) -> Candidate:
    writes = hold.kind == "pipe-write"
    peer_pids = [pid for pid in hold.peers if pid != proc.pid]
    nobody = hold.peers_known and not peer_pids
    peers = NO_PROCESS if nobody else _peers_text(view, proc, hold)
    reader, writer = (f"{peers} has not read", f"{peers} does not write to")
    if nobody:
        reader, writer = (f"{peers} reads", f"{peers} writes to")
    asks = not writes and hold.fd == 0  # a question to the user, as wandb's for a key
    what = "reads its standard input, a pipe that" if asks else "reads from a pipe that"
    does = f"writes to a full pipe that {reader}" if writes else f"{what} {writer}"
    if peer_pids and set(hold.stopped_peers) >= set(peer_pids):
        return _behind_stopped(proc, hold, does)
    ended = [child for child in view.children(proc.pid) if nobody and child.activity.kind == "gone"]
    lost = f"; its child {title(ended[0])} {doing(ended[0])}" if ended else ""
    candidate = Candidate(
        cause=blocked_class(proc),
        reason=f"{does},{in_phase(proc)}".rstrip(",") + lost,
        evidence=(_held_item(proc, hold, peers), *map(process_item, ended[:3]), *standstill(proc)),
        sink=Sink.ANSWER,
        liveness="never-wakes" if nobody or _ends_stand(view, hold) else "unseen",
        fixes=advice("terminal input" if asks else "dead worker" if ended else "pipe read"),
        confirm=(proc.shell("lsof -p {pid}"),),
        can_go_on="No: no process is left that writes to it." if nobody and not writes else "",
    )
    if not writes:
        return candidate
    drain = f"cat /proc/{{pid}}/fd/{hold.fd} > /dev/null  # the rank must resume; the data is lost"
    return replace(candidate, fixes=advice("pipe write"), confirm=(proc.shell(drain),))


def _ends_stand(view: JobView, hold: Blocked) -> bool:
    """A reader that stands leaves the pipe full; a writer that does may be waiting for its data."""
    peers = peers_seen(view, hold)
    stands = _STILL if hold.kind == "pipe-write" else HALTED
    seen_all = bool(peers) and len(peers) == len(hold.peers)
    return seen_all and all(peer.activity.kind in stands for peer in peers)


def _behind_stopped(proc: Process, hold: Blocked, does: str) -> Candidate:
    first = hold.stopped_peers[0]
    candidate = Candidate(
        cause=blocked_class(proc),
        reason=f"{does}, because it is stopped by a signal,{in_phase(proc)}".rstrip(","),
        evidence=(_held_item(proc, hold), *standstill(proc)),
        sink=Sink.ANSWER,
        liveness="never-wakes",
        can_go_on=f"Yes, as soon as {proc.name_of(first)} is resumed; nothing is lost.",
    )
    return candidate.continued(proc, pid=first)


def _peers_text(view: JobView, proc: Process, hold: Blocked) -> str:
    seen = {peer.pid: title(peer) for peer in peers_seen(view, hold)}
    seen[proc.pid] = "this process itself"
    peers = [seen.get(pid) or proc.name_of(pid) for pid in hold.peers[:3]]
    if peers:
        return ", ".join(peers)
    return NO_PROCESS if hold.peers_known else "a process that attach cannot see"


def _held_item(proc: Process, hold: Blocked, peers: str = "") -> Item:
    end = f", other end: {peers}" if peers else ""
    note = f"; {hold.note}" if hold.note else ""
    return Item("fd", proc.rank, f"{hold.kind} fd {hold.fd} {hold.target}{end}{note}")


def _socket(view: JobView, proc: Process, hold: Blocked) -> Candidate:
    peers = _peers_text(view, proc, hold) if hold.peers else ""
    target = " ".join(part for part in (hold.target, f"({peers})" if peers else "") if part)
    if any(short(frame.function) in _RESOLVES for frame in proc.blocking_place.frames[:2]):
        address = f", {target}" if hold.target.endswith(":53") else ""
        target = f"the name server (DNS){address}"
    ends = peers_seen(view, hold)
    sockets = "ss -xp" if hold.target.startswith("unix socket") else "ss -tnp"
    # Also the queues of a manager are behind a socket.
    queue = proc.blocking_place.call == "queue" and not any(is_blocked_in(e, *_VERBS) for e in ends)
    candidate = Candidate(
        cause=blocked_class(proc),
        reason=f"{_VERBS[hold.kind]} {target or 'a socket'}{in_phase(proc)}{one_of(proc)}",
        evidence=(_held_item(proc, hold, peers), *standstill(proc), *coroutine_items(proc)),
        sink=Sink.ANSWER,
        liveness=_answers(ends, hold),
        fixes=advice("wait" if queue else "request"),
        confirm=(proc.shell(f"{sockets} | grep pid={{pid}}  # bytes waiting on either side"),),
    )
    # Torch's store is in a rank or the launcher, and its calls are in C++.
    of_job = bool(ends) and all(end.member.role in ("rank", "launcher") for end in ends)
    if not of_job or ARROW not in hold.target or hold.kind != "socket-receive" or proc.place.call:
        return candidate
    native = "py-spy dump --native --pid {pid}  # in c10d::TCPStore: the key is not set"
    return replace(candidate, fixes=advice("store key"), confirm=(proc.shell(native),))


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
    loop = proc.idle_loop if kind in ("pool", "asyncio") and proc.tid == proc.pid else None
    if proc.coroutine is not None:
        what = proc.coroutine.what
        inside = "coroutine" if what.startswith("asyncio.") else ""
        kind, does = "sleep" if what == "asyncio.sleep" else inside, awaited_text(what)
    elif loop is not None:
        does = "awaits a coroutine, and no stack shows its line,"
    elif proc.activity.kind == "polling" and kind in _ASKS:
        does, for_what = _ASKS[kind], tasks.what_for(view, proc)
    in_loop = loop is not None or proc.coroutine is not None
    hidden = asks_engine(proc) and bool(view.engine_parts())
    # What comes from outside may come later, and a call of an actor puts into its queue.
    outside = proc.coroutine is not None and (bool(proc.actor) or kind != "coroutine")
    return Candidate(
        cause=blocked_class(proc),
        reason=f"{does}{in_phase(proc)}{for_what}{one_of(proc)}",
        evidence=(*standstill(proc), *coroutine_items(proc)),
        sink=Sink.NOTHING if hidden or not proc.place.frames else Sink.LINE,
        liveness="outside" if outside else "unseen",
        fixes=advice("await" if in_loop else "sleep" if kind == "sleep" else "wait"),
        confirm=(proc.shell(_AGAIN),),
        can_go_on=_CAN_GO_ON.get(kind, ""),
    )
