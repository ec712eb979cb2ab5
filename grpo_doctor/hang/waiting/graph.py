"""The wait-for graph, whatever its nodes are.

A node without an outgoing edge, at the end of a chain of waits, holds the others up; a ring of
waits is a deadlock. Where a thousand ranks wait in two camps there are half a million links, so
each of them is gone through once per camp and not once per rank.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from operator import attrgetter

from grpo_doctor.hang.matching.reach import reach

_ORDER = attrgetter("source", "target", "kind", "label")


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
    by_source: dict[str, tuple[Link, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, links: Iterable[Link]) -> Graph:
        """The graph of these links, in whatever order they come; nobody waits for itself."""
        kept = tuple(sorted({link for link in links if link.source != link.target}, key=_ORDER))
        by_source: dict[str, list[Link]] = {}
        for link in kept:
            by_source.setdefault(link.source, []).append(link)
        outgoing = {node: tuple(own) for node, own in by_source.items()}
        targets = {node: frozenset(link.target for link in own) for node, own in by_source.items()}
        return cls(kept, reach(targets), outgoing)

    def out(self, node: str) -> tuple[Link, ...]:
        """The waits of one node."""
        return self.by_source.get(node, ())

    def waiters(self, node: str) -> frozenset[str]:
        """Every node that waits for this one, directly or not."""
        return frozenset(one for one, found in self.reach.items() if node in found and one != node)

    def cycle(self) -> tuple[str, ...]:
        """The shortest ring of waits, from its smallest node on; empty without any."""
        turning = sorted(node for node, found in self.reach.items() if node in found)
        targets = {node: sorted({link.target for link in self.out(node)}) for node in turning}
        rings = [ring for node in turning if (ring := _ring_from(node, targets))]
        if not rings:
            return ()
        best = min(rings, key=lambda ring: (len(ring), sorted(ring)))
        start = best.index(min(best))
        return (*best[start:], *best[:start])


def _ring_from(node: str, targets: dict[str, list[str]]) -> tuple[str, ...]:
    """The shortest way from a node back to it."""
    paths: deque[tuple[str, ...]] = deque([(node,)])
    seen: set[str] = set()
    while paths:
        path = paths.popleft()
        for target in targets.get(path[-1], ()):
            if target == node:
                return path
            if target not in seen:
                seen.add(target)
                paths.append((*path, target))
    return ()
