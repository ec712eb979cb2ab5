"""What can be reached in a graph, from every node of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

N = TypeVar("N")


def reach(targets: Mapping[N, frozenset[N]]) -> dict[N, frozenset[N]]:
    """Every node that can be reached from each one, in one step or more.

    Ranks of one collective mostly wait for the same others: their answer is found once, and each
    set of links is gone through once in it.
    """
    known: dict[frozenset[N], frozenset[N]] = {}
    for direct in targets.values():
        if direct not in known:
            known[direct] = _closure(direct, targets)
    return {node: known[direct] for node, direct in targets.items()}


def _closure(direct: frozenset[N], targets: Mapping[N, frozenset[N]]) -> frozenset[N]:
    seen: set[N] = set(direct)
    todo = list(direct)
    expanded: set[frozenset[N]] = set()
    while todo:
        further = targets.get(todo.pop(), frozenset())
        if further in expanded:
            continue
        expanded.add(further)
        todo += further - seen
        seen |= further
    return frozenset(seen)
