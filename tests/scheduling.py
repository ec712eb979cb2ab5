"""Which process of pytest-xdist reads and runs which files.

What is outside `unit` mostly waits, for jobs and browsers, and what is in it computes: side by side
they keep the processors of a small machine busy to the end, one after the other they do not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Any

import pytest

# Of three processes one takes what waits; fewer than three take and read everything.
_FEWEST_TO_SPLIT = 3
_UNIT = "tests/unit/"
# A process keeps its last test until it knows what follows, so each is given two at least.
_AHEAD = 2


def waits(scope: str) -> bool:
    """Whether a file, or what is run as one, mostly waits."""
    return not scope.startswith(_UNIT)


def readers_of(path: str, workers: int) -> list[str]:
    """The workers, of so many, that read and run a file: each kind has workers of its own.

    One that replaces a worker that died has a higher number, and reads everything.
    """
    split = workers >= _FEWEST_TO_SPLIT
    return [f"gw{n}" for n in range(workers) if not split or _waits_at_best(n) == waits(path)]


def _waits_at_best(worker: int) -> bool:
    return worker % _FEWEST_TO_SPLIT == 1


class FileScheduling:
    """A `xdist.scheduler.Scheduling`: scopes in their order, each to a process that has read it.

    `LoadFileScheduling` wants all processes to read all files, 20 s of a processor each in a fresh
    clone, and looks through all tests for each that it sends: 15,000 times 15,000.
    """

    def __init__(self, config: pytest.Config, scope_of: Callable[[str], str]) -> None:
        self.config = config  # pytest-rerunfailures asks for it
        self._scope_of = scope_of
        self._workers = len(config.option.tx)
        self._collections: dict[Any, Sequence[str]] = {}
        self._positions: dict[Any, dict[str, int]] = {}
        self._pending: dict[Any, dict[str, None]] = {}
        self._queue: dict[str, list[str]] = {}
        self._began = False

    @property
    def nodes(self) -> list[Any]:
        """The processes that are there."""
        return list(self._pending)

    @property
    def collection_is_completed(self) -> bool:
        """Whether every process has read its files."""
        return len(self._collections) >= self._workers

    @property
    def tests_finished(self) -> bool:
        """Whether the processes may be told that nothing follows."""
        short = all(len(pending) < _AHEAD for pending in self._pending.values())
        return self.collection_is_completed and not self._queue and short

    @property
    def has_pending(self) -> bool:
        """Whether there are tests that have not ended."""
        return bool(self._queue) or any(self._pending.values())

    def add_node(self, node: Any) -> None:
        """A process has begun."""
        self._pending[node] = {}

    def add_node_collection(self, node: Any, collection: Sequence[str]) -> None:
        """It has read its files."""
        self._collections[node] = collection
        self._positions[node] = {test: index for index, test in enumerate(collection)}

    def schedule(self) -> None:
        """Gives each process its first tests, and later more where they have come back."""
        if not self._began:
            self._began = True
            self._enqueue(dict.fromkeys(chain.from_iterable(self._collections.values())))
            session: Any = self.config.pluginmanager.get_plugin("session")
            session.testscollected = sum(map(len, self._queue.values()))
        for node in self.nodes:
            self._provide(node)

    def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:
        """A test has ended, which its process knows by its index."""
        del duration
        self._pending[node].pop(self._collections[node][item_index], None)
        self._provide(node)

    def mark_test_pending(self, item: str) -> None:
        """A process died in this test, which is to be run once more."""
        self._enqueue([item])
        self.schedule()

    def remove_pending_tests_from_node(self, node: Any, indices: Sequence[int]) -> None:
        """Answers a process that gave tests back, which `--dist worksteal` alone asks for."""
        raise NotImplementedError

    def remove_node(self, node: Any) -> str | None:
        """A process has ended: what it had not run is for others. Gives the test it died in."""
        unfinished = list(self._pending.pop(node))
        self._enqueue(unfinished[1:])
        if self._began:
            self.schedule()
        return unfinished[0] if unfinished else None

    def _enqueue(self, tests: Iterable[str]) -> None:
        for test in tests:
            self._queue.setdefault(self._scope_of(test), []).append(test)

    def _provide(self, node: Any) -> None:
        if node.shutting_down or node not in self._positions:
            return
        while len(self._pending[node]) <= _AHEAD:
            scope = self._next_for(node)
            if scope is None:
                if not self._missing_readers():
                    node.shutdown()
                return
            tests = self._queue.pop(scope)
            self._pending[node].update(dict.fromkeys(tests))
            node.send_runtest_some([self._positions[node][test] for test in tests])

    def _next_for(self, node: Any) -> str | None:
        """The next scope that the process has read, of its own kind where there is one."""
        positions = self._positions[node]
        readable = [scope for scope, tests in self._queue.items() if tests[0] in positions]
        kind = _waits_at_best(int(node.gateway.id.removeprefix("gw")))
        suited = (scope for scope in readable if waits(scope) == kind)
        return next(suited, readable[0] if readable else None)

    def _missing_readers(self) -> bool:
        """Whether a process that replaces another is still reading."""
        return any(node not in self._positions for node in self._pending)
