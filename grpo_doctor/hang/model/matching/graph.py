"""Who waits for whom, and where all ways through that end."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Generic, TypeVar

from grpo_doctor.hang.model.matching.meetings import Meeting, Meetings
from grpo_doctor.hang.model.matching.queues import UNKNOWN, Queue, Unit, on_device

N = TypeVar("N", bound=Hashable)
Targets = Callable[[N], Iterable[N]]


Node = int | Unit | Meeting


class Waiting:
    """The graph of hosts, units and meetings, and its sinks. A rank whose GPU is `hung` waits for
    nobody.
    """

    def __init__(
        self, meetings: Meetings, queues: Mapping[int, Queue], hung: frozenset[int]
    ) -> None:
        self.meetings = meetings
        self.queues = queues
        self.hung = hung
        self.heads = [unit for rank in sorted(queues) for unit in queues[rank].heads]
        starts: list[Node] = [*self.heads]
        self.sinks = tuple(sinks(starts, self.targets))

    def targets(self, node: Node) -> Sequence[Node]:
        """What has to happen first."""
        if isinstance(node, Meeting):
            if node.all_joined and node.ends is None:
                return [unit for rank in node.joined for unit in self._earlier(rank, node)]
            return [*node.queued.values(), *node.missing, *node.unseen]
        if isinstance(node, Unit):
            if node.rank in self.hung:
                return ()
            return [node.behind] if node.behind is not None else self.meetings.of(node)
        queue = self.queues.get(node)
        return queue.heads if queue is not None else ()

    def _earlier(self, rank: int, meeting: Meeting) -> list[Unit]:
        """What a rank gave before its part of a whole meeting, and which is not over: it was not
        in the way of other operations then, and may be in the way of this one.
        """
        queue = self.queues[rank]
        own = queue.collectives[meeting.group, meeting.number]
        if not own.parts or not on_device(own.parts[0]):
            return []
        return [unit for unit in queue.heads if UNKNOWN < unit.order < own.order]


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
