"""What the page draws: states of ranks, the graph, and groups of equal stacks."""

from __future__ import annotations

from grpo_doctor.hang.scene import Actor, Scene
from grpo_doctor.hang.verdict import Edge, Node, RankState, StackGroup
from grpo_doctor.hang.waiting.graph import Graph
from grpo_doctor.hang.wording import ranks_text, runs, shorten
from grpo_doctor_probes.evidence import Frame

_HELD = {"gone": "dead", "stopped": "stopped", "frozen": "frozen"}
MOST_FRAMES = 24


def rank_states(scene: Scene, graph: Graph) -> tuple[RankState, ...]:
    """Every rank, missing ones included, then the other processes of the job."""
    shown = [one for one in scene.actors if one.member.role != "launcher" or one.held]
    states = [_state(scene, graph, actor) for actor in shown]
    known = set(scene.by_rank)
    states += [
        RankState(rank, None, "rank", "missing", "", "")
        for rank in scene.evidence.job.ranks_missing
        if rank not in known
    ]
    return tuple(sorted(states, key=_order))


def _order(one: RankState) -> tuple[bool, bool, int, int]:
    return one.role != "rank", one.rank is None, one.rank or 0, one.pid or 0


def _state(scene: Scene, graph: Graph, actor: Actor) -> RankState:
    targets = sorted({link.target for link in graph.out(actor.node)})
    if actor.held:
        state = _HELD[actor.motion.kind]
    elif actor.motion.progresses:
        state = "running"
    elif actor.waits or targets:
        state = "waiting"
    elif actor.motion.kind == "polling":
        state = "running"
    else:
        state = "blocked" if actor.motion.kind == "still" else "unknown"
    return RankState(
        rank=actor.rank,
        pid=actor.pid,
        role=actor.member.role,
        state=state,
        where=actor.place.text(),
        waiting_for="" if actor.held else _waiting_for(scene, graph, actor),
    )


def _waiting_for(scene: Scene, graph: Graph, actor: Actor) -> str:
    links = graph.out(actor.node)
    ranks = sorted({int(link.target[5:]) for link in links if link.target.startswith("rank:")})
    others = sorted({link.target for link in links if not link.target.startswith("rank:")})
    things = [_node(scene, one, guilty=False).label for one in others[:3]]
    parts = [text for text in (ranks_text(ranks), *things) if text]
    if not parts:
        hold = actor.hold
        return f"{hold.kind.replace('-', ' ')} {hold.target}".strip() if hold is not None else ""
    label = next((link.label for link in links if link.label and ranks), "")
    return f"{', '.join(parts)}{f', in {label}' if label else ''}"


def nodes_of(scene: Scene, graph: Graph, guilty: frozenset[str]) -> tuple[Node, ...]:
    """All ranks, and whatever else is in a wait."""
    ids = {f"rank:{rank}" for rank in scene.world}
    ids |= {end for link in graph.links for end in (link.source, link.target)} | guilty
    return tuple(_node(scene, one, guilty=one in guilty) for one in sorted(ids, key=_node_order))


def _node_order(one: str) -> tuple[bool, str, int]:
    kind, _, name = one.partition(":")
    return kind != "rank", kind, int(name) if name.isdecimal() else 0


def _node(scene: Scene, one: str, *, guilty: bool) -> Node:
    kind, _, name = one.partition(":")
    if kind == "rank":
        return Node(one, f"rank {name}", "rank", guilty)
    if kind == "pid":
        actor = scene.by_pid.get(int(name))
        if actor is None:
            return Node(one, f"pid {name}", "other", guilty)
        return Node(one, f"{actor.member.role} (pid {name})", actor.member.role, guilty)
    return Node(one, shorten(name, 40), kind, guilty)


def edges_of(graph: Graph) -> tuple[Edge, ...]:
    """The waits, each once. Ranks that wait for the same others are one edge: of a thousand ranks
    in two camps there are half a million waits.
    """
    label: dict[tuple[str, str, str], str] = {}
    for link in graph.links:
        label.setdefault((link.source, link.target, link.kind), shorten(link.label, 40))
    targets: dict[tuple[str, str, str], set[str]] = {}
    for (source, target, kind), text in label.items():
        targets.setdefault((source, kind, text), set()).add(target)
    alike: dict[tuple[str, str, str], set[str]] = {}
    for (source, kind, text), waited_for in targets.items():
        for target in _ends(waited_for):
            alike.setdefault((target, kind, text), set()).add(source)
    return tuple(
        Edge(source, target, kind, text)
        for (target, kind, text), waiting in sorted(alike.items())
        for source in _ends(waiting)
    )


def _ends(nodes: set[str]) -> tuple[str, ...]:
    """All ranks as one end, `rank:0-3,7`, and everything else as it is."""
    ranks = [int(one.removeprefix("rank:")) for one in nodes if one.startswith("rank:")]
    others = sorted(one for one in nodes if not one.startswith("rank:"))
    return (f"rank:{runs(ranks, ',')}", *others) if ranks else tuple(others)


def groups_of(scene: Scene) -> tuple[StackGroup, ...]:
    """Processes whose main threads stand in the same functions, largest group last."""
    groups: dict[tuple[str, ...], list[Actor]] = {}
    for actor in scene.actors:
        if actor.place.frames:
            key = tuple(_line(frame) for frame in actor.place.frames[:MOST_FRAMES])
            groups.setdefault(key, []).append(actor)
    made = [_group(frames, actors) for frames, actors in groups.items()]
    return tuple(sorted(made, key=lambda one: (len(one.pids), one.ranks, one.pids)))


def _group(frames: tuple[str, ...], actors: list[Actor]) -> StackGroup:
    ranks = tuple(
        sorted({a.rank for a in actors if a.member.role == "rank" and a.rank is not None})
    )
    roles = sorted({a.member.role for a in actors if a.member.role != "rank"})
    title = ", ".join(text for text in (ranks_text(ranks), *roles) if text)
    pids = tuple(sorted(a.pid for a in actors))
    place = actors[0].place.text()
    return StackGroup(ranks, pids, f"{title}: {place}" if title else place, frames)


def _line(frame: Frame) -> str:
    return f"{frame.function} ({frame.file}:{frame.line})"
