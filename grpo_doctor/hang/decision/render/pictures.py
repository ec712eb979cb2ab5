"""What the page draws: states of ranks, the graph, and groups of equal stacks."""

from __future__ import annotations

from collections.abc import Set
from functools import lru_cache

from grpo_doctor.hang.model import nodes
from grpo_doctor.hang.model.nodes import RankNode, ResourceNode, host_of, number_of
from grpo_doctor.hang.model.process.progress import HALTED
from grpo_doctor.hang.model.view import JobView, Process
from grpo_doctor.hang.model.waiting.waits import Graph
from grpo_doctor.hang.verdict import Edge, Node, RankState, StackGroup
from grpo_doctor.hang.wording import call_text, ranks_text, runs, shorten

MOST_FRAMES = 24


def rank_states(view: JobView, graph: Graph) -> tuple[RankState, ...]:
    """Return all ranks, missing ones included, then the other processes of the job."""
    if not view.evidence.looks:
        return tuple(_recorded(view, rank) for rank in view.seen)
    shown = [proc for proc in view.procs if proc.member.role != "launcher" or proc.cannot_run]
    states = [_state(view, graph, proc) for proc in shown]
    present = set(view.by_rank)
    states += [
        RankState(rank, None, "rank", "missing", "", "")
        for rank in view.evidence.job.ranks_missing
        if rank not in present
    ]
    states.sort(key=lambda s: (s.role != "rank", s.rank is None, s.rank or 0))
    return tuple(states)


def _recorded(view: JobView, rank: int) -> RankState:
    """Return what a rank's recording shows of it."""
    wait = next((wait for wait in view.matching.waits if wait.rank == rank), None)
    hung = any(b.rank == rank and b.reason == "device-hung" for b in view.matching.blame)
    return RankState(
        rank=rank,
        pid=None,
        role="rank",
        state="unknown" if wait is None else "waiting",
        where="" if wait is None else f"{wait.operation} #{wait.sequence}",
        waiting_for="its own GPU" if hung else ranks_text(wait.on) if wait is not None else "",
    )


def _state(view: JobView, graph: Graph, proc: Process) -> RankState:
    targets = graph.needed(proc.node)
    if proc.cannot_run:
        state = HALTED[proc.activity.kind]
    elif proc.activity.progresses:
        state = "running"
    elif proc.waits or targets:
        state = "waiting"
    elif proc.activity.kind == "polling":
        state = "running"
    else:
        state = "blocked" if proc.activity.kind == "still" else "unknown"
    return RankState(
        rank=proc.rank,
        pid=proc.number,
        role=proc.member.role,
        state=state,
        where=proc.place.text(),
        waiting_for="" if proc.cannot_run else _waiting_for(view, graph, proc),
        host=proc.member.host,
    )


def _waiting_for(view: JobView, graph: Graph, proc: Process) -> str:
    links = graph.out(proc.node)
    needed = graph.needed(proc.node)
    ranks, resources = _parted(needed)
    labels = [_node(view, node, guilty=False).label for node in resources[:3]]
    parts = [text for text in (ranks, *labels) if text]
    if not parts:
        hold = proc.hold
        return call_text(hold.kind, hold.target) if hold is not None else ""
    label = next((link.label for link in links if link.label and ranks), "")
    return f"{', '.join(parts)}{f', in {label}' if label else ''}"


@lru_cache(maxsize=16)
def _parted(needed: frozenset[nodes.Node]) -> tuple[str, tuple[nodes.Node, ...]]:
    """The ranks in words, and the rest; hundreds of ranks may wait for the same hundreds."""
    ranks = sorted(node.rank for node in needed if isinstance(node, RankNode))
    resources = [node for node in needed if not isinstance(node, RankNode)]
    return ranks_text(ranks), tuple(sorted(resources, key=lambda node: node.id))


def nodes_of(view: JobView, graph: Graph, guilty: frozenset[nodes.Node]) -> tuple[Node, ...]:
    """All ranks, and whatever else is in a wait."""
    drawn: set[nodes.Node] = {RankNode(rank) for rank in view.world} | guilty
    drawn |= {link.source for link in graph.links}
    drawn = drawn.union(*{link.targets for link in graph.links})
    ordered = sorted(drawn, key=lambda node: node.order)
    return tuple(_node(view, node, guilty=node in guilty) for node in ordered)


def _node(view: JobView, node: nodes.Node, *, guilty: bool) -> Node:
    if isinstance(node, RankNode):
        return Node(node.id, f"rank {node.rank}", "rank", guilty)
    if isinstance(node, ResourceNode):
        return Node(node.id, shorten(node.name, 40), node.kind, guilty)
    proc = view.by_pid.get(node.pid)
    if proc is None:
        host = next((p.on_host for p in view.procs if host_of(p.pid) == host_of(node.pid)), "")
        return Node(node.id, f"pid {number_of(node.pid)}{host}", "other", guilty)
    return Node(node.id, f"{proc.member.role} ({proc.name})", proc.member.role, guilty)


def edges_of(graph: Graph) -> tuple[Edge, ...]:
    """The waits, each once. Ranks that wait for the same others are one edge: of a thousand ranks
    in two camps there are half a million waits.
    """
    waits: dict[tuple[nodes.Node, str, str], frozenset[nodes.Node]] = {}
    for link in graph.links:
        key = link.source, link.kind, shorten(link.label, 40)
        targets = waits.get(key)
        waits[key] = link.targets if targets is None else targets | link.targets
    alike: dict[tuple[frozenset[nodes.Node], str, str], set[nodes.Node]] = {}
    for (source, kind, text), needed in waits.items():
        alike.setdefault((needed, kind, text), set()).add(source)
    merged: dict[tuple[str, str, str], set[nodes.Node]] = {}
    for (needed, kind, text), sources in alike.items():
        for end in _ends(needed):
            merged.setdefault((end, kind, text), set()).update(sources)
    return tuple(
        Edge(source, target, kind, text)
        for (target, kind, text), waiting in sorted(merged.items())
        for source in _ends(waiting)
    )


def _ends(drawn: Set[nodes.Node]) -> tuple[str, ...]:
    """All ranks as one end, `rank:0-3,7`, and everything else as it is."""
    ranks = [node.rank for node in drawn if isinstance(node, RankNode)]
    resources = sorted(node.id for node in drawn if not isinstance(node, RankNode))
    return (f"rank:{runs(ranks, ',')}", *resources) if ranks else tuple(resources)


def stack_groups(view: JobView) -> tuple[StackGroup, ...]:
    """Return groups of processes whose main threads are in the same functions, largest last."""
    groups: dict[tuple[str, ...], list[Process]] = {}
    for proc in view.procs:
        if proc.place.frames:
            frames = proc.place.frames[:MOST_FRAMES]
            key = tuple(f"{frame.function} ({frame.file}:{frame.line})" for frame in frames)
            groups.setdefault(key, []).append(proc)
    made = [_group(lines, procs) for lines, procs in groups.items()]
    return tuple(sorted(made, key=lambda group: (len(group.pids), group.ranks, group.pids)))


def _group(frames: tuple[str, ...], procs: list[Process]) -> StackGroup:
    ranks = tuple(sorted({a.rank for a in procs if a.member.role == "rank" and a.rank is not None}))
    roles = sorted({a.member.role for a in procs if a.member.role != "rank"})
    title = ", ".join(text for text in (ranks_text(ranks), *roles) if text)
    pids = tuple(sorted(a.number for a in procs))
    place = procs[0].place.text()
    return StackGroup(ranks, pids, f"{title}: {place}" if title else place, frames)
