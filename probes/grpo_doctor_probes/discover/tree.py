"""Parents and children among the processes of one scan."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from grpo_doctor_probes.discover.scan import Process


class Tree:
    """The process tree. Parents may be missing: hidden, or ended between two reads."""

    def __init__(self, processes: Mapping[int, Process]) -> None:
        self.processes = processes
        self._children: dict[int, list[int]] = {}
        for process in processes.values():
            self._children.setdefault(process.parent, []).append(process.pid)

    def children(self, pid: int) -> list[Process]:
        """The direct children, in order of their start."""
        return [
            self.processes[one] for one in sorted(self._children.get(pid, ()), key=self.started)
        ]

    def started(self, pid: int) -> tuple[int, int]:
        """What orders processes by their start."""
        return self.processes[pid].started_ticks, pid

    def ancestors(self, pid: int) -> Iterator[int]:
        """From the parent upwards, as far as processes are known."""
        seen = {pid}
        while (process := self.processes.get(pid)) is not None:
            pid = process.parent
            if pid in seen or pid not in self.processes:
                return
            seen.add(pid)
            yield pid

    def descendants(self, pid: int) -> set[int]:
        """All below, without `pid`."""
        found: set[int] = set()
        waiting = list(self._children.get(pid, ()))
        while waiting:
            if (child := waiting.pop()) not in found and child != pid:
                found.add(child)
                waiting.extend(self._children.get(child, ()))
        return found

    def nearest(self, pid: int, among: Iterable[int] | Mapping[int, object]) -> int | None:
        """The nearest ancestor that is one of `among`."""
        wanted = among if isinstance(among, (set, frozenset, Mapping)) else set(among)
        return next((above for above in self.ancestors(pid) if above in wanted), None)
