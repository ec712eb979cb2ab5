"""Where all ways through a graph end."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Generic, TypeVar

N = TypeVar("N", bound=Hashable)
Targets = Callable[[N], Iterable[N]]


def sinks(starts: Iterable[N], targets: Targets[N]) -> Iterator[frozenset[N]]:
    """The strongly connected components that can be reached and that nothing leads out of."""
    walk = _Walk(targets)
    for start in starts:
        for component in walk.components(start):
            if all(target in component for one in component for target in targets(one)):
                yield component


class _Walk(Generic[N]):
    """Tarjan's algorithm, without recursion: chains of waits are as long as jobs are wide."""

    def __init__(self, targets: Targets[N]) -> None:
        self._targets = targets
        self._index: dict[N, int] = {}
        self._low: dict[N, int] = {}
        self._open: list[N] = []
        self._is_open: set[N] = set()
        self._path: list[tuple[N, Iterator[N]]] = []

    def components(self, start: N) -> Iterator[frozenset[N]]:
        """Those that are complete once everything behind `start` was seen."""
        if start in self._index:
            return
        self._enter(start)
        while self._path:
            node, ahead = self._path[-1]
            following = next(ahead, None)
            if following is None:
                self._path.pop()
                if self._path:
                    self._lower(self._path[-1][0], self._low[node])
                if self._low[node] == self._index[node]:
                    yield self._close(node)
            elif following not in self._index:
                self._enter(following)
            elif following in self._is_open:
                self._lower(node, self._index[following])

    def _enter(self, node: N) -> None:
        self._index[node] = self._low[node] = len(self._index)
        self._open.append(node)
        self._is_open.add(node)
        self._path.append((node, iter(self._targets(node))))

    def _lower(self, node: N, to: int) -> None:
        self._low[node] = min(self._low[node], to)

    def _close(self, root: N) -> frozenset[N]:
        inside: set[N] = set()
        while root not in inside:
            inside.add(self._open.pop())
        self._is_open -= inside
        return frozenset(inside)
