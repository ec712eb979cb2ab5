"""The wait-for graph, whatever its nodes are.

A node without an outgoing edge, at the end of a chain of waits, holds the others up; a ring of
waits is a deadlock. Where a thousand ranks wait in two camps there are half a million links, so
each of them is gone through once per camp and not once per rank.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from grpo_doctor.hang.matching.reach import reach
from grpo_doctor.hang.waiting.nodes import Node


def _order(one: Link) -> tuple[object, ...]:
    return one.source.order, one.target.order, one.kind, one.label


@dataclass(frozen=True, slots=True)
class Link:
    """`source` waits for `target`, both node ids; `label` in few words."""

    source: Node
    target: Node
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
        """The graph of these links, in whatever order they come; nobody waits for itself."""
        kept = tuple(sorted({link for link in links if link.source != link.target}, key=_order))
        by_source: dict[Node, list[Link]] = {}
        for link in kept:
            by_source.setdefault(link.source, []).append(link)
        outgoing = {node: tuple(own) for node, own in by_source.items()}
        targets = {node: frozenset(link.target for link in own) for node, own in by_source.items()}
        return cls(kept, reach(targets), outgoing)

    def out(self, node: Node) -> tuple[Link, ...]:
        """The waits of one node."""
        return self.by_source.get(node, ())

    def waiters(self, node: Node) -> frozenset[Node]:
        """Every node that waits for this one, directly or not."""
        return frozenset(one for one, found in self.reach.items() if node in found and one != node)

    def cycle(self) -> tuple[Node, ...]:
        """The shortest ring of waits, from its smallest node on; empty without any."""
        turning = sorted((n for n, found in self.reach.items() if n in found), key=_by_order)
        targets = {
            node: sorted({link.target for link in self.out(node)}, key=_by_order)
            for node in turning
        }
        rings = [ring for node in turning if (ring := _ring_from(node, targets))]
        if not rings:
            return ()
        best = min(rings, key=lambda ring: (len(ring), sorted(node.order for node in ring)))
        start = best.index(min(best, key=_by_order))
        return (*best[start:], *best[:start])


def _by_order(node: Node) -> tuple[int, str, int]:
    return node.order


def _ring_from(node: Node, targets: dict[Node, list[Node]]) -> tuple[Node, ...]:
    """The shortest way from a node back to it."""
    paths: deque[tuple[Node, ...]] = deque([(node,)])
    seen: set[Node] = set()
    while paths:
        path = paths.popleft()
        for target in targets.get(path[-1], ()):
            if target == node:
                return path
            if target not in seen:
                seen.add(target)
                paths.append((*path, target))
    return ()
