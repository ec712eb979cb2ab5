"""The wait-for graph, whatever its nodes are.

A node without an outgoing wait, at the end of a chain of them, holds the others up; nodes that wait
for each other are one component, and a ring is a deadlock. A collective needs all of its targets,
who reads a pipe any of its writers. Ranks of one collective need the same ones, so of a thousand
ranks in two camps there are a thousand waits and not half a million.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Literal

from grpo_doctor.hang.model.matching.graph import reach, ring_from
from grpo_doctor.hang.model.nodes import Node

_SHORTEST = 2  # nobody waits for itself


@dataclass(frozen=True, slots=True)
class Link:
    """`source` waits for all of `targets`, or for any one of them; `label` in few words."""

    source: Node
    targets: frozenset[Node]
    kind: str
    label: str = ""
    needs: Literal["all", "any"] = "all"


@dataclass(frozen=True, slots=True)
class Graph:
    """All waits. `reach` maps a node to every node that it waits for, directly or not; `rings` one
    that waits for itself to all that are in its ring.
    """

    links: tuple[Link, ...]
    reach: dict[Node, frozenset[Node]] = field(default_factory=dict)
    by_source: dict[Node, tuple[Link, ...]] = field(default_factory=dict)
    rings: dict[Node, frozenset[Node]] = field(default_factory=dict)

    @classmethod
    def of(cls, links: Iterable[Link]) -> Graph:
        """Return the graph of these links, in any order; no process waits for itself."""
        ordered = tuple(sorted(set(_of_others(links)), key=_order))
        by_source: dict[Node, list[Link]] = defaultdict(list)
        for link in ordered:
            by_source[link.source].append(link)
        outgoing = {node: tuple(own) for node, own in by_source.items()}
        reached = reach({node: _targets(own) for node, own in outgoing.items()})
        return cls(ordered, reached, outgoing, _rings(reached))

    def out(self, node: Node) -> tuple[Link, ...]:
        """The waits of one node."""
        return self.by_source.get(node, ())

    def needed(self, node: Node) -> frozenset[Node]:
        """Every node that it waits for directly."""
        return _targets(self.out(node))

    def component(self, node: Node) -> frozenset[Node]:
        """The nodes that wait for each other with this one; itself alone where it is in no ring."""
        return self.rings.get(node) or frozenset((node,))

    def moved_by(self, alive: frozenset[Node]) -> frozenset[Node]:
        """These nodes, and all whose waits they may end, directly or not.

        Waits for any of several are of one blocking call, seen in several ways: one is enough.
        """
        moved = set(alive)
        waiting = set(self.by_source) - moved if moved else set()
        while freed := {node for node in waiting if self._is_freed(node, moved)}:
            moved |= freed
            waiting -= freed
        return frozenset(moved)

    def _is_freed(self, node: Node, moved: set[Node]) -> bool:
        links = self.out(node)
        either = [link for link in links if link.needs == "any"]
        needed = all(link.targets <= moved for link in links if link.needs == "all")
        return needed and (not either or any(not link.targets.isdisjoint(moved) for link in either))

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
        ordered: dict[frozenset[Node], list[Node]] = {}

        def targets(node: Node) -> list[Node]:
            needed = self.needed(node)
            if needed not in ordered:
                ordered[needed] = sorted(needed, key=by_order)
            return ordered[needed]

        best: tuple[Node, ...] = ()
        for node in sorted((n for n, reached in self.reach.items() if n in reached), key=by_order):
            ring = ring_from(node, targets)
            if ring and (not best or len(ring) < len(best)):
                best = ring
            if len(best) == _SHORTEST:
                break
        if not best:
            return ()
        start = best.index(min(best, key=by_order))
        return (*best[start:], *best[:start])


def by_order(node: Node) -> tuple[int, str, int]:
    """Sorts nodes: ranks, processes, things."""
    return node.order


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
        min(map(by_order, link.targets)),
    )


def _targets(links: tuple[Link, ...]) -> frozenset[Node]:
    if len(links) == 1:
        return links[0].targets
    return frozenset().union(*(link.targets for link in links))


def _rings(reached: dict[Node, frozenset[Node]]) -> dict[Node, frozenset[Node]]:
    """Who reaches the same nodes, itself among them, is in the same ring."""
    alike: dict[frozenset[Node], list[Node]] = defaultdict(list)
    for node, ahead in reached.items():
        if node in ahead:
            alike[ahead].append(node)
    rings = map(frozenset, alike.values())
    return {node: ring for ring in rings for node in ring}
