"""The wait-for graph: who waits for whom, across ranks, groups, roles and things. Pure.

A node without an outgoing wait, at the end of a chain of them, holds the others up; nodes that wait
for each other are one component, and a ring is a deadlock. A collective needs all of its targets,
who reads a pipe any of its writers. Ranks of one collective need the same ones, so of a thousand
ranks in two camps there are a thousand waits and not half a million.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from operator import attrgetter

from grpo_doctor.hang.model.matching.graph import reach, ring_from
from grpo_doctor.hang.model.nodes import Node, ProcessNode, RankNode, ResourceNode
from grpo_doctor.hang.model.view import JobView, Process
from grpo_doctor.hang.model.waiting import tasks
from grpo_doctor.hang.wording import call_text

_SHORTEST = 2  # nobody waits for itself
_BY_ORDER = attrgetter("order")  # ranks, processes, things


@dataclass(frozen=True, slots=True)
class Link:
    """`source` waits for `targets`: in a collective for all, else for any; `label` in few words."""

    source: Node
    targets: frozenset[Node]
    kind: str
    label: str = ""


@dataclass(frozen=True, slots=True)
class Graph:
    """All waits. `reach` maps a node to every node that it waits for, directly or not."""

    links: tuple[Link, ...]
    reach: dict[Node, frozenset[Node]] = field(default_factory=dict)
    by_source: dict[Node, tuple[Link, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, links: Iterable[Link]) -> Graph:
        """Return the graph of these links, in any order; no process waits for itself."""
        ordered = tuple(sorted(set(_of_others(links)), key=_order))
        by_source: dict[Node, list[Link]] = defaultdict(list)
        for link in ordered:
            by_source[link.source].append(link)
        outgoing = {node: tuple(own) for node, own in by_source.items()}
        reached = reach({node: _targets(own) for node, own in outgoing.items()})
        return cls(ordered, reached, outgoing)

    def out(self, node: Node) -> tuple[Link, ...]:
        """The waits of one node."""
        return self.by_source.get(node, ())

    def needed(self, node: Node) -> frozenset[Node]:
        """Every node that it waits for directly."""
        return _targets(self.out(node))

    def component(self, node: Node) -> frozenset[Node]:
        """The nodes that wait for each other with this one; itself alone where it is in no ring."""
        ahead = self.reach.get(node, frozenset())
        ring = (other for other in ahead if node in self.reach.get(other, ()))
        return frozenset(ring) if node in ahead else frozenset((node,))

    def waiters(self, *nodes: Node) -> frozenset[Node]:
        """Every node that waits for one of these other than itself, directly or not."""
        targets = frozenset(nodes)
        met: dict[frozenset[Node], frozenset[Node]] = {}  # ranks of a collective reach the same
        waiting = []
        for node, reached in self.reach.items():
            if reached not in met:
                met[reached] = reached & targets
            if met[reached] - {node}:
                waiting.append(node)
        return frozenset(waiting)

    def cycle(self) -> tuple[Node, ...]:
        """The shortest ring of waits, from its smallest node on; empty without any."""

        @cache  # ranks of a collective need the same ones
        def ordered(nodes: frozenset[Node]) -> list[Node]:
            return sorted(nodes, key=_BY_ORDER)

        best: tuple[Node, ...] = ()
        for node in ordered(frozenset(n for n, reached in self.reach.items() if n in reached)):
            ring = ring_from(node, lambda waiting: ordered(self.needed(waiting)))
            if ring and (not best or len(ring) < len(best)):
                best = ring
            if len(best) == _SHORTEST:
                break
        start = best.index(min(best, key=_BY_ORDER)) if best else 0
        return (*best[start:], *best[:start])


def _of_others(links: Iterable[Link]) -> Iterable[Link]:
    for link in links:
        targets = link.targets - {link.source} if link.source in link.targets else link.targets
        if targets:
            yield replace(link, targets=targets)


def _order(link: Link) -> tuple[object, ...]:
    return (
        link.source.order,
        link.kind,
        link.label,
        len(link.targets),
        min(map(_BY_ORDER, link.targets)),
    )


def _targets(links: tuple[Link, ...]) -> frozenset[Node]:
    if len(links) == 1:
        return links[0].targets
    return frozenset().union(*(link.targets for link in links))


_SOCKETS = ("socket-receive", "socket-send", "socket-connect", "socket-accept", "poll")
_CHANNELS = {
    **dict.fromkeys(("pipe-read", "pipe-write"), "pipe"),
    **dict.fromkeys(("file", "fifo-open"), "file"),
    **dict.fromkeys(_SOCKETS, "socket"),
    "file-lock": "lock",
    "child": "child",
}
_THINGS = ("file", "lock", "socket")
# The processes that a rank starts for a loader, a pool or a child.
_CHILD_ROLES = {
    "loader": ("dataloader",),
    "pool": ("reward", "helper"),
    "child": ("reward", "helper"),
}
_PARTNER = ("src", "dst")
_MOST_DIGITS = 9  # of a rank; whatever else was on the stack may be of any length


@lru_cache(maxsize=64)
def _nodes(ranks: tuple[int, ...]) -> frozenset[Node]:
    """Made once: a thousand ranks of a collective wait for the same ones."""
    return frozenset(map(RankNode, ranks))


def build(view: JobView) -> Graph:
    """Finds every wait that the evidence shows."""
    return Graph.of(
        (
            *_recorded(view),
            *_by_stack(view),
            *_held(view),
            *_children(view),
            *_engines(view),
            *_tasks(view),
        )
    )


def _recorded(view: JobView) -> Iterator[Link]:
    """Yield waits of flight recorders; ranks that made progress since then, or died, have none."""
    for wait in view.matching.waits:
        proc = view.by_rank.get(wait.rank)
        if wait.why == "joined" or (proc is not None and not proc.waits):
            continue
        label = f"{wait.operation} #{wait.sequence}" if wait.sequence else wait.operation
        kind = "p2p" if wait.why == "p2p" else "collective"
        yield Link(RankNode(wait.rank), _nodes(wait.on), kind, label)


def absent(view: JobView) -> tuple[int, ...]:
    """Ranks that are not in any call that needs the others, or are not able to answer."""
    unseen = [rank for rank in view.world if rank not in view.by_rank]
    missing = view.evidence.job.ranks_missing
    busy = [rank for rank, proc in view.by_rank.items() if not proc.waits]
    return tuple(sorted({*busy, *(rank for rank in unseen if rank in missing)}))


def _by_stack(view: JobView) -> Iterator[Link]:
    """Yield waits of ranks without a recording: they wait for the ranks outside such a call."""
    recorded = {wait.rank for wait in view.matching.waits if wait.why != "joined"}
    absentees = absent(view)
    for rank, proc in view.by_rank.items():
        if not proc.waits or rank in recorded:
            continue
        if proc.place.call == "p2p":
            peer = partner_of(view, proc)
            targets = absentees if peer is None else (peer,)
            kind = "p2p"
        else:
            joins = proc.at_store or proc.place.call == "store"
            targets, kind = absentees, "store" if joins else "collective"
        yield Link(RankNode(rank), _nodes(targets), kind, proc.place.operation)


def _held(view: JobView) -> Iterator[Link]:
    """What the main thread's blocking call is on, where it is not in a call to other ranks."""
    for proc in view.procs:
        hold = proc.hold
        if hold is None or proc.waits or hold.kind not in _CHANNELS:
            continue
        kind = _CHANNELS[hold.kind]
        if proc.member.role == "rank" and proc.place.call == "loader":
            continue  # the loader's children say more than the queue's pipe
        ends: set[Node] = {
            view.by_pid[pid].node if pid in view.by_pid else ProcessNode(pid) for pid in hold.peers
        }
        if not ends and kind in _THINGS and hold.target:
            ends = {ResourceNode(kind, hold.target)}
        yield Link(proc.node, frozenset(ends), kind, call_text(hold.kind, hold.target))


def _children(view: JobView) -> Iterator[Link]:
    """A rank in a loader, pool or child wait needs the processes it started for that."""
    for proc in view.procs:
        if proc.waits or proc.cannot_run:
            continue
        roles = _CHILD_ROLES.get(proc.place.call)
        if roles is None:
            continue
        children = [
            child.node
            for child in view.children(proc.pid)
            if child.member.role in roles and "tracker" not in child.member.name
        ]
        yield Link(proc.node, frozenset(children), "child", proc.place.operation)


def asks_engine(proc: Process) -> bool:
    """Return whether it waits for something and the stack says that it is a rollout."""
    if "generate" not in proc.place.purposes and proc.place.purpose != "weight-sync":
        return False
    return proc.place.call in ("http", "poll", "queue", "asyncio", "lock", "pool") or (
        proc.hold is not None and proc.hold.kind in ("socket-receive", "pipe-read", "poll", "futex")
    )


def _engines(view: JobView) -> Iterator[Link]:
    """A rank in a rollout needs the engine; an engine's front needs its core, that its workers."""
    parts = view.engine_parts()
    pids = {process.pid for process in parts}
    for proc in view.by_rank.values():
        if proc.waits or proc.cannot_run or not asks_engine(proc):
            continue
        fronts = [process for process in parts if process.member.parent not in pids]
        peers = {pid for row in proc.blocked for pid in row.peers}
        own = [process for process in parts if process.pid in peers]
        own = own or [process for process in fronts if process.rank in (proc.rank, None)] or fronts
        own = [process for process in own if process.member.host == proc.member.host] or own
        engines = frozenset(engine.node for engine in own)
        yield Link(proc.node, engines, "engine", proc.place.operation)
    for front in parts:
        # A server wakes for every message of its core's, and depends on it all the same.
        at_rest = front.member.role == "server" or front.activity.kind in ("still", "polling")
        for child in view.children(front.pid):
            if child.pid in pids and (at_rest or child.cannot_run):
                yield Link(front.node, frozenset({child.node}), "engine")


def _tasks(view: JobView) -> Iterator[Link]:
    """Link an idle actor of Ray to its driver's next call, and who asks for tasks to busy ones."""
    callers = tasks.drivers(view)
    for rank in tasks.idle_ranks(view):
        calling = frozenset(caller.node for caller in callers)
        yield Link(rank.node, calling, "task", "its next call")
    for proc in view.procs:
        if proc.asks:
            for worker in tasks.pending(view):
                task = frozenset({worker.node})
                yield Link(proc.node, task, "task", worker.task)


def partner_of(view: JobView, proc: Process) -> int | None:
    """The rank of the job at the other end; None where it is not known.

    `send_object_list` passes on its partner's number within a group alone, which no stack names: a
    number of the job counts, whichever call of the stack has it.
    """
    for call in view.evidence.arguments:
        for value in (call.values.get(name, "") for name in _PARTNER if call.pid == proc.pid):
            if value.isdecimal() and len(value) <= _MOST_DIGITS:
                return int(value)
    return None
