"""What the page draws: states of ranks, the graph, and groups of equal stacks."""

from __future__ import annotations

from grpo_doctor.hang.scene import Actor, Scene
from grpo_doctor.hang.verdict import Edge, Node, RankState, StackGroup
from grpo_doctor.hang.waits import Graph
from grpo_doctor.hang.wording import ranks_text, shorten
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
    return kind != "rank", kind, int(name) if name.isdigit() else 0


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
    """The waits, each once."""
    seen: dict[tuple[str, str, str], Edge] = {}
    for link in graph.links:
        key = (link.source, link.target, link.kind)
        seen.setdefault(key, Edge(link.source, link.target, link.kind, shorten(link.label, 40)))
    return tuple(seen.values())


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
