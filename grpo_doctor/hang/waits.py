"""The wait-for graph: who waits for whom, across ranks, process groups, roles and things.

A node without an outgoing edge, at the end of a chain of waits, holds the others up; a ring of
waits is a deadlock.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from grpo_doctor.hang.scene import Actor, Scene
from grpo_doctor_probes.evidence import Blocked

_CHANNELS = {
    "pipe-read": "pipe",
    "pipe-write": "pipe",
    "fifo-open": "file",
    "socket-receive": "socket",
    "socket-send": "socket",
    "socket-connect": "socket",
    "socket-accept": "socket",
    "file": "file",
    "file-lock": "lock",
    "child": "child",
    "poll": "socket",
}
_THINGS = ("file", "lock", "socket")


@dataclass(frozen=True, slots=True)
class Link:
    """`source` waits for `target`, both node ids; `label` in few words."""

    source: str
    target: str
    kind: str
    label: str = ""


@dataclass(frozen=True, slots=True)
class Graph:
    """All waits. `reach` maps a node to every node that it waits for, directly or not."""

    links: tuple[Link, ...]
    reach: dict[str, frozenset[str]] = field(default_factory=dict)

    def out(self, node: str) -> tuple[Link, ...]:
        """The waits of one node."""
        return tuple(link for link in self.links if link.source == node)

    def waiters(self, node: str) -> frozenset[str]:
        """Every node that waits for this one, directly or not."""
        return frozenset(one for one, found in self.reach.items() if node in found and one != node)

    def ring(self, node: str) -> bool:
        """Whether it waits, in the end, for itself."""
        return node in self.reach.get(node, ())

    def cycle(self) -> tuple[str, ...]:
        """The shortest ring of waits, from its smallest node on; empty without any."""
        rings = [ring for node in sorted(self.reach) if (ring := self._ring_from(node))]
        if not rings:
            return ()
        best = min(rings, key=lambda ring: (len(ring), sorted(ring)))
        start = best.index(min(best))
        return (*best[start:], *best[:start])

    def _ring_from(self, node: str) -> tuple[str, ...]:
        paths: list[tuple[str, ...]] = [(node,)]
        seen: set[str] = set()
        while paths:
            path = paths.pop(0)
            for target in sorted({link.target for link in self.out(path[-1])}):
                if target == node:
                    return path
                if target not in seen:
                    seen.add(target)
                    paths.append((*path, target))
        return ()


def build(scene: Scene) -> Graph:
    """Finds every wait that the evidence shows."""
    links = sorted(
        {
            *_recorded(scene),
            *_by_stack(scene),
            *_held(scene),
            *_children(scene),
            *_engines(scene),
        },
        key=lambda link: (link.source, link.target, link.kind, link.label),
    )
    kept = tuple(link for link in links if link.source != link.target)
    return Graph(kept, _reach(kept))


def _reach(links: Sequence[Link]) -> dict[str, frozenset[str]]:
    targets: dict[str, set[str]] = {}
    for link in links:
        targets.setdefault(link.source, set()).add(link.target)
    found: dict[str, frozenset[str]] = {}
    for node, direct in targets.items():
        seen: set[str] = set()
        todo = list(direct)
        while todo:
            one = todo.pop()
            if one not in seen:
                seen.add(one)
                todo.extend(targets.get(one, ()))
        found[node] = frozenset(seen)
    return found


def _recorded(scene: Scene) -> Iterator[Link]:
    """What flight recorders say; ranks that got on since then, or died, wait for nobody."""
    for wait in scene.matching.waits:
        actor = scene.by_rank.get(wait.rank)
        if wait.why == "joined" or (actor is not None and not actor.waits):
            continue
        label = f"{wait.operation} #{wait.sequence}" if wait.sequence else wait.operation
        kind = "p2p" if wait.why == "p2p" else "collective"
        for rank in wait.on:
            yield Link(f"rank:{wait.rank}", f"rank:{rank}", kind, label)


def absent(scene: Scene) -> tuple[int, ...]:
    """Ranks that are not in any call that needs the others, or are not able to answer."""
    gone = [rank for rank in scene.world if rank not in scene.by_rank]
    here = scene.evidence.job.ranks_missing
    away = [rank for rank, actor in scene.by_rank.items() if not actor.waits]
    return tuple(sorted({*away, *(rank for rank in gone if rank in here)}))


def _by_stack(scene: Scene) -> Iterator[Link]:
    """Ranks of which no recording tells: they wait for whoever is not in such a call."""
    told = {wait.rank for wait in scene.matching.waits if wait.why != "joined"}
    others = absent(scene)
    for rank, actor in scene.by_rank.items():
        if not actor.waits or rank in told:
            continue
        if actor.place.call == "p2p":
            peer = peer_of(scene, actor)
            targets: Iterable[int] = others if peer is None else (peer,)
            kind = "p2p"
        else:
            joins = actor.at_store or actor.place.call == "store"
            targets, kind = others, "store" if joins else "collective"
        for target in targets:
            yield Link(f"rank:{rank}", f"rank:{target}", kind, actor.place.operation)


def peer_of(scene: Scene, actor: Actor) -> int | None:
    """The global rank that a send or receive names, by its arguments; None where unknown."""
    for call in scene.evidence.arguments:
        if call.pid != actor.pid:
            continue
        for name in ("src", "dst", "group_src", "group_dst"):
            value = call.values.get(name, "")
            if value.isdigit():
                return int(value)
    return None


def _held(scene: Scene) -> Iterator[Link]:
    """What the main thread's blocking call is on, where it is not in a call to other ranks."""
    for actor in scene.actors:
        hold = actor.hold
        if hold is None or actor.waits or hold.kind not in _CHANNELS:
            continue
        kind = _CHANNELS[hold.kind]
        known = [scene.by_pid[pid].node for pid in hold.peers if pid in scene.by_pid]
        if actor.member.role == "rank" and actor.place.call == "loader":
            continue  # the loader's children say more than the queue's pipe
        for node in known:
            yield Link(actor.node, node, kind, _label(hold))
        strangers = [pid for pid in hold.peers if pid not in scene.by_pid]
        for pid in strangers:
            yield Link(actor.node, f"pid:{pid}", kind, _label(hold))
        if not known and not strangers and kind in _THINGS and hold.target:
            yield Link(actor.node, f"{kind}:{hold.target}", kind, _label(hold))


def _label(hold: Blocked) -> str:
    return f"{hold.kind.replace('-', ' ')} {hold.target}".strip()


def _children(scene: Scene) -> Iterator[Link]:
    """A rank in a loader, pool or child wait needs the processes it started for that."""
    for actor in scene.actors:
        if actor.waits or actor.held:
            continue
        if actor.place.call == "loader":
            wanted: tuple[str, ...] = ("dataloader",)
        elif actor.place.call in ("pool", "child"):
            wanted = ("reward", "helper")
        else:
            continue
        for child in scene.children(actor.pid):
            if child.member.role in wanted and "tracker" not in child.member.name:
                yield Link(actor.node, child.node, "child", actor.place.operation)


def asks_engine(actor: Actor) -> bool:
    """Whether it waits for something and the stack says that it is a rollout."""
    if "generate" not in actor.place.purposes and actor.place.purpose != "weight-sync":
        return False
    return actor.place.call in ("http", "poll", "queue", "asyncio", "lock") or (
        actor.hold is not None
        and actor.hold.kind in ("socket-receive", "pipe-read", "poll", "futex")
    )


def _engines(scene: Scene) -> Iterator[Link]:
    """A rank in a rollout needs the engine; an engine's front needs its core, that its workers."""
    parts = scene.engine_parts()
    pids = {one.pid for one in parts}
    for actor in scene.by_rank.values():
        if actor.waits or actor.held or not asks_engine(actor):
            continue
        fronts = [one for one in parts if one.member.parent not in pids]
        own = [one for one in fronts if one.rank in (actor.rank, None)] or fronts
        for engine in own:
            yield Link(actor.node, engine.node, "engine", actor.place.operation)
    for front in parts:
        if front.motion.kind in ("still", "polling"):
            for child in scene.children(front.pid):
                if child.pid in pids:
                    yield Link(front.node, child.node, "engine", "")
